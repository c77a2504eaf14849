// inferno chat on a terminal and in a pipe.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/terminal.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

class Chat : public Folder {
 protected:
  // A model of random weights: its answers mean nothing and end at the limit.
  [[nodiscard]] std::vector<std::string> talk(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"chat",   kLlamaFile, "--chat-template", "chatml", "-n", "8",
                                     "--seed", "7",        "--ignore-end"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  [[nodiscard]] Terminal::Environment home() const { return {{"XDG_STATE_HOME", path("state")}}; }
  [[nodiscard]] std::string file(const std::string& name) const {
    std::ifstream in(path(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(Chat, AQuestionIsAnsweredTheSeedShownAndALimitNoted) {
  Terminal terminal(talk(), home());
  terminal.wait_for("temp 0.7, top-p 0.95, min-p 0.05, seed 7");
  terminal.wait_for("> ");
  terminal.type("Hello\r");
  terminal.wait_for("[cut after 8 tokens");
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0);
}

TEST_F(Chat, TheSecondTurnIsPrefilledOnlyWhereItIsNew) {
  Terminal terminal(talk(), home());
  terminal.wait_for("> ");
  terminal.type("Tell me of the sea and the old man and the boats and the wind in the night\r");
  terminal.wait_for("[cut after");
  terminal.type("And then?\r");
  terminal.wait_for("[cut after");
  terminal.type("/stats\r");
  terminal.wait_for("2 turns");
  terminal.wait_for("last prompt");
  const int prompt = std::stoi(terminal.wait_for(" tokens: "));
  const int reused = std::stoi(terminal.wait_for(" reused"));
  EXPECT_GT(prompt, 100);
  EXPECT_GT(reused, prompt / 2);
}

TEST_F(Chat, CtrlCStopsTheAnswerAndNotTheProgramAndClearsALine) {
  if (!INFERNO_LIBEDIT) GTEST_SKIP() << "built without libedit: lines are not edited";
  // The built-in model on plain loops: hundreds of tokens would take minutes.
  Terminal terminal({"chat", "--backend", "scalar", "-n", "900"}, home());
  terminal.wait_for("only continues stories");
  terminal.wait_for("> ");
  terminal.type("Once upon a time\r");
  // In the middle of the answer, and not in an echo of the question.
  for (int word = 0; word < 16; ++word) terminal.wait_for(" ");
  terminal.type("\x03");
  terminal.wait_for("[stopped]");
  terminal.wait_for("> ");
  terminal.type("/no such command\x03");
  terminal.wait_for("> ");
  terminal.type("/stats\r");
  terminal.wait_for("ended by cancelled");
  terminal.wait_for("> ");  // the end of input is the editor's, not the terminal's own
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_EQ(terminal.raw().find("there is no /no"), std::string::npos);
}

TEST_F(Chat, LinesAreEditedAndTheHistoryIsKept) {
  if (!INFERNO_LIBEDIT) GTEST_SKIP() << "built without libedit: lines are not edited";
  {
    Terminal terminal(talk(), home());
    terminal.wait_for("> ");
    terminal.type("/sett\x7f\r");  // one letter too many
    terminal.wait_for("[temp 0.7");
    terminal.type("/exit\r");
    EXPECT_EQ(terminal.finish(), 0);
  }
  EXPECT_EQ(file("state/inferno/chat_history"), "/set\n/exit\n");
  Terminal terminal(talk(), home());
  terminal.wait_for("> ");
  terminal.type("\x1b[A\x1b[A\r");  // up, up
  terminal.wait_for("[temp 0.7");
  terminal.wait_for("> ");  // the end of input is the editor's, not the terminal's own
  terminal.type("\x04");
  EXPECT_EQ(terminal.finish(), 0);
}

TEST_F(Chat, SeveralLinesAreOneQuestion) {
  if (!INFERNO_LIBEDIT) GTEST_SKIP() << "built without libedit: lines are not edited";
  Terminal terminal(talk(), home());
  const auto ask = [&](const std::vector<std::string>& lines) {
    terminal.wait_for("> ");
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) terminal.wait_for(". ");
      terminal.type(lines[i] + "\r");
    }
    terminal.wait_for("[cut after");
  };
  const auto first_of = [&](const std::string& name) {
    terminal.wait_for("> ");
    terminal.type("/save " + path(name) + "\r");
    terminal.wait_for("2 messages");
    terminal.type("/clear\r");
    terminal.wait_for("[a new conversation]");
    return nlohmann::json::parse(file(name), nullptr, false)["messages"][0]["content"];
  };
  ask({"one\\", "two"});
  EXPECT_EQ(first_of("a.json"), "one\ntwo");
  ask({"\"\"\"three", "four\"\"\""});
  EXPECT_EQ(first_of("b.json"), "three\nfour");
  ask({"five\x1b\rsix"});  // Alt-Enter
  EXPECT_EQ(first_of("c.json"), "five\nsix");
  ask({"\x1b[200~seven\reight\x1b[201~"});  // pasted
  EXPECT_EQ(first_of("d.json"), "seven\neight");
}

TEST_F(Chat, CommandsChangeTheConversation) {
  Terminal terminal(talk({"--system", "Be brief."}), home());
  terminal.wait_for("> ");
  terminal.type("first\r");
  terminal.wait_for("[cut after");
  terminal.type("second\r");
  terminal.wait_for("[cut after");
  terminal.type("/undo\r");
  terminal.wait_for("[taken back; 1 question is left]");
  terminal.type("/regen\r");
  terminal.wait_for("[cut after");
  terminal.type("/set temp 0\r");
  terminal.wait_for("[greedy, n 8]");
  terminal.type("/set top_p 5\r");
  terminal.wait_for("error: ");
  terminal.type("/set n 3\r");
  terminal.wait_for("[greedy, n 3]");
  terminal.type("/system\r");
  terminal.wait_for("[Be brief.]");
  terminal.type("/system Sing.\r");
  terminal.wait_for("[the system text is set]");
  terminal.type("/save " + path("a.json") + "\r");
  terminal.wait_for("3 messages in");
  terminal.type("/clear\r");
  terminal.wait_for("[a new conversation]");
  terminal.type("/undo\r");
  terminal.wait_for("error: there is nothing to take back");
  terminal.type("/load " + path("a.json") + "\r");
  terminal.wait_for("[3 messages, 1 question]");
  terminal.type("/think off\r");
  terminal.wait_for("error: this model's chat template has no switch for thinking");
  terminal.type("/hepl\r");
  terminal.wait_for("did you mean /help?");
  terminal.type("/help\r");
  terminal.wait_for("/regen");
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.finish(), 0);
  const auto saved = nlohmann::json::parse(file("a.json"))["messages"];
  EXPECT_EQ(saved[0]["content"], "Sing.");
  EXPECT_EQ(saved[1]["content"], "first");
}

TEST_F(Chat, TheEndOfTheContextIsSaidAndTheOldestTurnsCanBeDropped) {
  // The questions fill the context, whatever the few tokens of the answers are: one fits, two do not.
  Terminal terminal(talk({"-n", "4"}), home());
  const std::string question =
      "Tell me more of the sea and the boats and of the old man and the wind in the night and of all that the others "
      "said of them in the morning\r";
  terminal.wait_for("> ");
  terminal.type(question);
  terminal.wait_for("[cut after");
  terminal.type(question);
  terminal.wait_for("the context of 256 positions is full");
  terminal.wait_for("drop the 1 oldest turn? [Y/n] ");
  terminal.type("n\r");
  terminal.wait_for("nothing was asked");
  terminal.type(question);
  terminal.wait_for("drop the 1 oldest turn? [Y/n] ");
  terminal.type("\r");
  terminal.wait_for("[cut after");
  terminal.type("/stats\r");
  terminal.wait_for("1 turn,");
  terminal.type(std::string(400, 'x') + "\r");
  terminal.wait_for("leaves no room for an answer");
}

TEST_F(Chat, ATerminalOfTwentyColumnsAndOneThatChangesItsSizeWork) {
  Terminal terminal(talk(), home(), 20);
  terminal.wait_for("> ");
  terminal.type("a question that is longer than the line");
  terminal.resize(60);
  terminal.type(" and goes on\r");
  terminal.wait_for("[cut after 8");
  terminal.resize(10);
  terminal.type("/save " + path("t.json") + "\r");
  terminal.wait_for("2 messages");
  EXPECT_EQ(nlohmann::json::parse(file("t.json"))["messages"][0]["content"],
            "a question that is longer than the line and goes on");
}

TEST_F(Chat, ASignalLeavesTheTerminalAsItWas) {
  if (!INFERNO_LIBEDIT) GTEST_SKIP() << "built without libedit: lines are not edited";
  Terminal terminal(talk(), home());
  terminal.wait_for("> ");
  terminal.signal(SIGTERM);
  EXPECT_EQ(terminal.finish(), 128 + SIGTERM);
  EXPECT_TRUE(terminal.raw().ends_with("\x1b[?2004l"));
}

TEST_F(Chat, APipeIsOneQuestionAndOneAnswer) {
  const Outcome one = run(talk({"--quiet"}), {.input = "Two lines\nof one question\n"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.err.find("[cut after 8 tokens"), std::string::npos) << one.err;
  EXPECT_EQ(run(talk({"--quiet"}), {.input = "Two lines\nof one question"}).out, one.out) << "the last line's end";
  EXPECT_NE(run(talk({"--seed", "8"}), {.input = "Two lines\nof one question"}).out, one.out);
  expect_error(run(talk(), {.input = "\n"}), 2, "empty");
  expect_error(run(talk({"--quiet"}), {.input = std::string(400, 'x')}), 1, "leaves no room for an answer");
}

TEST_F(Chat, ASeedThatWasNotGivenIsRandomAndShown) {
  const std::vector<std::string> args = {"chat", kLlamaFile, "--chat-template", "chatml", "-n", "20", "--ignore-end"};
  const auto seed_of = [](const std::string& text) {
    const size_t at = text.find("seed ");
    return at == std::string::npos ? "" : text.substr(at + 5, text.find(']', at) - at - 5);
  };
  const Outcome first = run(args, {.input = "Hello"});
  const std::string seed = seed_of(first.err);
  ASSERT_FALSE(seed.empty()) << first.err;
  EXPECT_NE(seed_of(run(args, {.input = "Hello"}).err), seed);
  std::vector<std::string> again = args;
  again.insert(again.end(), {"--seed", seed});
  EXPECT_EQ(run(again, {.input = "Hello"}).out, first.out);
}

TEST_F(Chat, AFileWithoutATemplateSaysWhatToDo) {
  expect_error(run({"chat", kLlamaFile}, {.input = "Hello"}), 1, "--chat-template");
  expect_error(run({"chat", path("absent.gguf")}, {.input = "Hello"}), 1, "absent.gguf");
}

TEST_F(Chat, TheBuiltInModelSaysThatItOnlyContinuesStories) {
  const Outcome outcome = run({"chat", "-n", "4", "--temp", "0"}, {.input = "Once upon a time"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("only continues stories"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace inferno::testing
