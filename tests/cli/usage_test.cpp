// A command line that never surprises: what is meant by arguments, pipes, limits and seeds.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/program.h"
#include "support/terminal.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

using Usage = Folder;

nlohmann::json json_of(std::vector<std::string> args, const std::string& input = "") {
  args.insert(args.begin(), "generate");
  args.insert(args.end(), {"--json", "-n", "8"});
  const Outcome outcome = run(args, {.input = input});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

// ---- options and their values

TEST_F(Usage, StopTakesOneValueAndMayBeRepeated) {
  const auto plain = json_of({kLlamaFile, "The sea"});
  EXPECT_EQ(json_of({"--stop", "@@", kLlamaFile, "The sea"})["text"], plain["text"]);
  EXPECT_EQ(json_of({"--stop", "@@", "--stop", "##", kLlamaFile, "The sea"})["prompt_ids"], plain["prompt_ids"]);
}

TEST_F(Usage, BatchTakesOneValue) {
  const Outcome outcome = run({"bench", "--repeat", "0", "--gen", "1", "--prompt", "2", "--batch", "1,2", kLlamaFile});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Usage, ARepeatedOptionTakesTheLast) {
  EXPECT_EQ(json_of({kLlamaFile, "x", "--seed", "1", "--seed", "2"})["seed"], 2);
}

// ---- which model, which prompt

TEST_F(Usage, AModelThatIsNamedIsNeverThePromptOfTheBuiltInOne) {
  std::filesystem::create_directory(path("folder"));
  expect_error(run({"generate", "no/such/model"}), 1, "no/such/model");
  expect_error(run({"generate", "qwen3:0.6b"}), 1, "there is no file \"qwen3:0.6b\"");
  expect_error(run({"generate", "model.bin"}), 1, "-p");
  expect_error(run({"generate", path("folder")}, {.input = "x"}), 1, "is a folder without a config.json");
  expect_error(run({"generate", "-m", "Hello", "-p", "x"}), 1, "Hello");
  expect_error(run({"generate", "Hello", "there"}), 1, "there is no file \"Hello\"");
  EXPECT_EQ(run({"generate", "-p", "qwen3:0.6b", "-n", "1"}).code, 0);
  EXPECT_EQ(run({"generate", "Wait: the sea. And e.g. this", "-n", "1"}).code, 0);
  EXPECT_EQ(run({"generate", "Hello!", "-n", "1"}).code, 0);
}

TEST_F(Usage, AMissingOrEmptyPromptIsAnErrorWithAModelOfOnesOwn) {
  expect_error(run({"generate", kLlamaFile}), 2, "the prompt is missing");
  expect_error(run({"generate", kLlamaFile, ""}), 2, "the prompt is empty");
  expect_error(run({"generate", "-m", kLlamaFile, "-p", ""}), 2, "the prompt is empty");
  expect_error(run({"generate", ""}), 2, "the prompt is empty");
  EXPECT_TRUE(run({"generate", "-n", "1"}).out.starts_with("Once upon a time"));
}

TEST_F(Usage, ShortOptionsMeanWhatPeopleKnow) {
  std::ofstream(path("prompt.txt")) << "The sea";
  const auto expected = json_of({kLlamaFile, "The sea", "--seed", "5", "--ctx", "100", "--threads", "1"});
  const auto same = [&](const std::vector<std::string>& args) {
    const auto made = json_of(args);
    EXPECT_EQ(made["prompt_ids"], expected["prompt_ids"]);
    EXPECT_EQ(made["generated_ids"], expected["generated_ids"]);
  };
  same({"-m", kLlamaFile, "-p", "The sea", "-s", "5", "-c", "100", "-t", "1"});
  same({"-m", kLlamaFile, "-f", path("prompt.txt"), "-s", "5", "-c", "100", "-t", "1"});
  same({"-m", kLlamaFile, "The sea", "-s", "5"});
  same({kLlamaFile, "-p", "The sea", "-s", "5"});
  expect_error(run({"generate", "-m", kLlamaFile, "one", "two"}), 2, "too many");
  expect_error(run({"generate", kLlamaFile, "one", "-p", "two"}), 2, "once");
}

TEST_F(Usage, NoEchoPrintsTheContinuationAlone) {
  const Outcome echoed = run({"generate", kLlamaFile, "The sea", "-n", "4", "--quiet"});
  EXPECT_EQ("The sea" + run({"generate", kLlamaFile, "The sea", "-n", "4", "--quiet", "--no-echo"}).out, echoed.out);
}

TEST_F(Usage, APipedPromptIsRead) {
  EXPECT_EQ(json_of({kLlamaFile}, "The sea")["prompt_ids"], json_of({kLlamaFile, "The sea"})["prompt_ids"]);
  EXPECT_EQ(json_of({kLlamaFile, "The sea"}, "something else")["prompt_ids"],
            json_of({kLlamaFile, "The sea"})["prompt_ids"])
      << "a prompt that was given is the prompt";
  EXPECT_TRUE(run({"generate", "-n", "1"}, {.input = "The sea"}).out.starts_with("The sea"));
}

TEST_F(Usage, TheLastLineEndAndAByteOrderMarkOfAPromptAreNoPartOfIt) {
  const auto expected = json_of({kLlamaFile, "The\nsea"})["prompt_ids"];
  for (const std::string& text : std::vector<std::string>{"The\nsea", "The\nsea\n", "\xEF\xBB\xBFThe\nsea\r\n"}) {
    std::ofstream(path("prompt.txt"), std::ios::binary) << text;
    EXPECT_EQ(json_of({kLlamaFile, "--file", path("prompt.txt")})["prompt_ids"], expected);
    EXPECT_EQ(json_of({kLlamaFile}, text)["prompt_ids"], expected);
  }
  EXPECT_NE(json_of({kLlamaFile}, "The\nsea\n\n")["prompt_ids"], expected) << "only one";
}

// ---- limits and seeds

TEST_F(Usage, ATextThatIsCutSaysSo) {
  const Outcome cut = run({"generate", kLlamaFile, "The sea", "-n", "3", "--ignore-end"});
  EXPECT_NE(cut.err.find("cut after 3 tokens"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("stop_reason: length"), std::string::npos) << cut.err;
  const Outcome whole = run({"generate", kLlamaFile, "The sea", "-n", "-1", "--ignore-end"});
  EXPECT_EQ(whole.err.find("cut after"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("the context of 256 positions is full"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("stop_reason: context_full"), std::string::npos) << whole.err;
  EXPECT_EQ(run({"generate", kLlamaFile, "The sea", "-n", "-2"}).code, 2);
}

TEST_F(Usage, WithoutSamplingOptionsTextIsGreedyAndEachAloneDraws) {
  const auto greedy = json_of({kLlamaFile, "The sea"});
  EXPECT_FALSE(greedy.contains("seed"));
  EXPECT_EQ(json_of({kLlamaFile, "The sea"})["text"], greedy["text"]);
  EXPECT_EQ(json_of({kLlamaFile, "The sea", "--temp", "0"})["text"], greedy["text"]);
  EXPECT_FALSE(json_of({kLlamaFile, "The sea", "--repeat-penalty", "1.1"}).contains("seed"));
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{
           {"--top-k", "40"}, {"--top-p", "0.9"}, {"--min-p", "0.1"}, {"--seed", "3"}, {"--temp", "0.5"}}) {
    std::vector<std::string> args = {kLlamaFile, "The sea"};
    args.insert(args.end(), option.begin(), option.end());
    EXPECT_TRUE(json_of(args).contains("seed")) << option[0];
  }
  EXPECT_EQ(json_of({kLlamaFile, "The sea", "--seed", "3"})["text"],
            json_of({kLlamaFile, "The sea", "--seed", "3", "--temp", "0.8"})["text"]);
}

TEST_F(Usage, TheSeedIsRandomUnlessGivenAndAlwaysShown) {
  const auto first = json_of({kLlamaFile, "The sea", "--temp", "2"});
  const auto second = json_of({kLlamaFile, "The sea", "--temp", "2"});
  EXPECT_NE(first["seed"], second["seed"]);
  const std::string seed = std::to_string(first["seed"].get<uint64_t>());
  EXPECT_EQ(json_of({kLlamaFile, "The sea", "--temp", "2", "--seed", seed})["text"], first["text"]);
  const Outcome shown = run({"generate", kLlamaFile, "The sea", "-n", "2", "--seed", "77"});
  EXPECT_NE(shown.err.find("seed: 77"), std::string::npos) << shown.err;
}

// ---- the program itself

TEST_F(Usage, BareInfernoPrintsHelpAndAMistypedSubcommandIsNamedWithTheNearest) {
  const Outcome bare = run({});
  EXPECT_EQ(bare.code, 0);
  EXPECT_NE(bare.out.find("inferno chat"), std::string::npos) << bare.out;
  expect_error(run({"generat", "x"}), 2, "there is no subcommand \"generat\"; did you mean generate?");
  expect_error(run({"zzzzzzzz"}), 2, "there is no subcommand \"zzzzzzzz\" (");
}

TEST_F(Usage, AReaderThatHasSeenEnoughIsNoError) {
  const Outcome outcome = run({"generate", kLlamaFile, "The sea", "-n", "100", "--ignore-end"}, {.close_stdout = true});
  EXPECT_EQ(outcome.code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Usage, ALongPromptIsNotEchoedBeforeItIsRefused) {
  const Outcome outcome = run({"generate", kLlamaFile, std::string(5000, 'x')});
  expect_error(outcome, 1, "context");
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Usage, AdviceCanBeFollowed) {
  // The built-in model has 1,024 positions: a longer context helps until there, and is not recommended beyond.
  std::string words;
  for (int i = 0; i < 300; ++i) words += "the sea ";
  const Outcome cut = run({"generate", words, "--ctx", "64", "-n", "1"});
  expect_error(cut, 1, "shorten it or load the model with --ctx 1024 or less");
  EXPECT_EQ(run({"generate", words, "--ctx", "1024", "-n", "1"}).code, 0);
  const Outcome too_long = run({"generate", words + words + words, "-n", "1"});
  expect_error(too_long, 1, "positions; shorten it");
  EXPECT_EQ(too_long.err.find("--ctx"), std::string::npos) << too_long.err;
  expect_error(run({"generate", "x", "--ctx", "5000"}), 2, "use 1024 or less");

  const Outcome no_backend = run({"generate", "x", "-n", "1", "--backend", "cuda"});
  if (no_backend.code != 0) {
    expect_error(no_backend, no_backend.code, "use --backend parallel");
    EXPECT_EQ(run({"generate", "x", "-n", "1", "--backend", "parallel"}).code, 0);
  }
  const Outcome limited = run({"generate", "x", "-n", "2"});
  EXPECT_NE(limited.err.find("-n -1 has no limit"), std::string::npos) << limited.err;
  EXPECT_EQ(run({"generate", "x", "-n", "-1", "--ctx", "32"}).code, 0);
}

TEST_F(Usage, MetricsShowThePromptItsSpeedLoadingAndWhyItStopped) {
  const std::string shown = run({"generate", kLlamaFile, "The sea", "-n", "4"}).err;
  for (const char* needle : {"prompt: ", " tokens, ", " per second", "load_ms: ", "stop_reason: "}) {
    EXPECT_NE(shown.find(needle), std::string::npos) << needle << shown;
  }
}

// Nothing that is drawn over itself is wider than the terminal: it would become a line of its own each time.
TEST_F(Usage, BarsFitTheTerminalAndALongPromptHasOne) {
  std::string words;
  for (int i = 0; i < 300; ++i) words += "sea ";
  std::ofstream(path("prompt.txt")) << words;
  for (const uint16_t columns : {uint16_t{20}, uint16_t{60}}) {
    Terminal terminal({"generate", "--backend", "scalar", "-t", "1", "--no-echo", "-f", path("prompt.txt")}, {},
                      columns);
    terminal.wait_for("prompt ");
    terminal.wait_for(" %");
    terminal.signal(SIGINT);
    EXPECT_EQ(terminal.finish(), 128 + SIGINT);
    const std::string& raw = terminal.raw();
    for (size_t begin = raw.find("\rprompt "); begin != std::string::npos; begin = raw.find("\rprompt ", begin + 1)) {
      const std::string line = raw.substr(begin + 1, raw.find_first_of("\r\n", begin + 1) - begin - 1);
      EXPECT_LT(line.size(), columns) << line;
    }
  }
}

TEST_F(Usage, LogitsRefuseATerminal) {
  Terminal terminal({"logits", kLlamaFile, "--ids", "1,2"});
  terminal.wait_for("nothing for a terminal");
  EXPECT_EQ(terminal.finish(), 2);
}

TEST_F(Usage, AFileThatIsReplacedKeepsItsMode) {
  std::ofstream(path("out.gguf")) << "old";
  std::filesystem::permissions(path("out.gguf"), std::filesystem::perms(0600));
  ASSERT_EQ(run({"quantize", kLlamaFile, path("out.gguf"), "q8_0", "--quiet"}).code, 0);
  EXPECT_EQ(std::filesystem::status(path("out.gguf")).permissions(), std::filesystem::perms(0600));
}

TEST_F(Usage, LimitsAreKeptInAFileOnlyWhenTheyWere) {
  const std::string text = run({"machine"}, {.environment = {{"XDG_CACHE_HOME", "/proc/none"}}}).out;
  EXPECT_NE(text.find("kept nowhere"), std::string::npos) << text;
}

TEST_F(Usage, BenchRowsSayWhereTheyComeFrom) {
  const Outcome outcome =
      run({"bench", kLlamaFile, "--prompt", "4", "--gen", "2", "--repeat", "1", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto row = nlohmann::json::parse(outcome.out)[0];
  EXPECT_EQ(row["file"], kLlamaFile);
  EXPECT_EQ(row["settings"], "prompt 4, gen 2, depth 0, repeat 1");
  for (const char* key : {"version", "cpu", "date"}) EXPECT_FALSE(row[key].get<std::string>().empty()) << key;
  EXPECT_TRUE(row["load_average"].is_number());
}

// ---- many prompts

TEST_F(Usage, JsonLinesAnswerEveryLineInOrderAsEachWouldBeAlone) {
  std::string input;
  constexpr int kLines = 40;
  for (int i = 0; i < kLines; ++i) {
    input += R"({"id": "line-)" + std::to_string(i) + R"(", "prompt": "The sea )" + std::to_string(i) + R"("})" + "\n";
  }
  const Outcome outcome = run({"generate", kLlamaFile, "--jsonl", "-n", "8", "--parallel", "4"}, {.input = input});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto made = nlohmann::json::parse(line);
    EXPECT_EQ(made["index"], count);
    EXPECT_EQ(made["id"], "line-" + std::to_string(count));
    if (count % 13 == 0) {
      EXPECT_EQ(made["text"], json_of({kLlamaFile, "The sea " + std::to_string(count)})["text"]);
    }
  }
  EXPECT_EQ(count, kLines);
}

TEST_F(Usage, ALineThatCannotBeAnsweredHasAnErrorAndTheOthersGoOn) {
  const Outcome outcome =
      run({"generate", kLlamaFile, "--jsonl", "-n", "4"},
          {.input = "{\"prompt\": \"a\"}\nnonsense\n\n{\"ids\": [1, 99999]}\n{\"prompt\": \"b\", \"n\": "
                    "2, \"temp\": 1, \"seed\": 9}\n{\"prompt\": \"c\", \"temp\": -1}\n{\"ids\": [1, 2]}\n"
                    "{\"prompt\": 5}\n{\"prompt\": \"a\", \"n\": 1e30}\n{}\n"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  std::vector<nlohmann::json> made;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) made.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(made.size(), 9U) << outcome.out;
  const std::vector<bool> fails = {false, true, true, false, true, false, true, true, true};
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].contains("error"), fails[i]) << made[i];
  EXPECT_EQ(made[3]["generated_tokens"], 2);
  EXPECT_EQ(made[3]["seed"], 9);
}

}  // namespace
}  // namespace inferno::testing
