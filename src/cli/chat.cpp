// inferno chat: a conversation on a terminal, or one question from a pipe and its answer.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/chat_session.h"
#include "cli/chat_template.h"
#include "cli/cli.h"
#include "cli/line_editor.h"
#include "cli/prompt_input.h"
#include "cli/sampling_flags.h"
#include "cli/signals.h"
#include "cli/speculation_flags.h"
#include "template/known_templates.h"

namespace inferno::cli {
namespace {

// Where the model's file says nothing.
constexpr SamplingSettings kChatSampling{.temperature = 0.7F, .top_p = 0.95F, .min_p = 0.05F};
// The built-in model rarely ends a story by itself.
constexpr int32_t kStoryTokens = 120;
constexpr std::string_view kQuotes = "\"\"\"";

struct ChatCommand {
  EngineFlags engine;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  std::string model;
  std::string system;
  std::string chat_template;
  std::optional<int32_t> max_new;
  bool no_think = false;
  bool hide_thinking = false;
  bool ignore_end = false;

  void run() const;
  [[nodiscard]] ChatSetup setup(const Llm& llm) const;
  void greet(const Llm& llm, const ChatSetup& setup, ChatScreen& screen) const;
};

ChatSetup ChatCommand::setup(const Llm& llm) const {
  ChatSetup result;
  const std::optional<SamplingSettings> suggested = llm.suggested_sampling();
  result.generate.sampling = sampling.over(suggested.value_or(kChatSampling));
  result.chat.chat_template = read_chat_template(chat_template);
  result.chat.enable_thinking = !no_think;
  result.model = model.empty() ? "the built-in model" : std::filesystem::path(model).filename().string();
  result.continues = model.empty() && chat_template.empty() && !llm.has_chat_template();
  result.generate.max_new_tokens = max_new.value_or(result.continues ? kStoryTokens : -1);
  result.generate.stop_at_end = !ignore_end;
  // Says now, not after the first question, that there is no template or that it cannot be read.
  if (!result.continues) (void)llm.can_switch_thinking(result.chat.chat_template);
  return result;
}

void ChatCommand::greet(const Llm& llm, const ChatSetup& setup, ChatScreen& screen) const {
  if (setup.continues) {
    screen.note(
        "the built-in model only continues stories: type how one begins; for answers name a chat model: inferno chat "
        "model.gguf");
  }
  if (engine.quiet) return;
  screen.note("{}, context {}, {}", setup.model, llm.context(), describe(setup.generate.sampling));
  screen.note("/help lists what can be done, Ctrl-D leaves");
}

// A question of one line or more; false: there is none, and no more will come.
bool read_question(LineEditor& editor, std::string& text) {
  text.clear();
  bool quoted = false;
  while (true) {
    std::string line;
    const LineEditor::Result result = editor.read(text.empty() && !quoted ? "> " : ". ", line);
    if (result == LineEditor::Result::interrupted) {
      text.clear();
      return true;
    }
    if (result == LineEditor::Result::end) return !text.empty();
    const std::string_view trimmed = trim(line);
    if (!quoted && text.empty() && trimmed.starts_with(kQuotes)) {
      quoted = true;
      line = trimmed.substr(kQuotes.size());
    }
    if (quoted && trim(line).ends_with(kQuotes)) {
      const std::string_view last = trim(line);
      text += last.substr(0, last.size() - kQuotes.size());
      return true;
    }
    if (!quoted && !line.ends_with('\\')) {
      text += line;
      return true;
    }
    if (!quoted) line.pop_back();
    if (!quoted || !line.empty() || !text.empty()) text += line + "\n";
  }
}

void talk(ChatSession& session, LineEditor& editor) {
  std::string text;
  while (read_question(editor, text)) {
    const std::string_view trimmed = trim(text);
    if (trimmed.empty()) continue;
    editor.remember(trimmed);
    try {
      if (!trimmed.starts_with('/')) {
        session.ask(std::string(trimmed));
      } else if (!session.command(trimmed)) {
        return;
      }
    } catch (const Error& error) {  // of this line alone
      report_error(error.what());
    }
  }
}

void ChatCommand::run() const {
  const bool interactive = ::isatty(STDIN_FILENO) == 1;
  const std::string question = interactive ? "" : read_prompt("-");
  if (!interactive && trim(question).empty()) fail_usage("the question on standard input is empty");
  LoadOptions load = engine.load_options();
  load.draft = speculation.draft;
  Llm llm = model.empty() ? Llm::builtin(load) : Llm::load(model, load);
  ChatScreen screen;
  screen.fold_thinking = hide_thinking;
  ChatSetup made = setup(llm);
  speculation.apply(made.generate);
  if (!interactive) {
    if (made.continues) greet(llm, made, screen);
    if (!made.continues && !engine.quiet) screen.note("{}", describe(made.generate.sampling));
    const InterruptGuard guard(llm);
    ChatSession session(llm, made, screen, {});
    session.set_system(system);
    session.ask(question);
    if (session.last() && session.last()->reason() == StopReason::cancelled) throw Exit{.signal = SIGINT};
    return;
  }
  greet(llm, made, screen);
  LineEditor editor(chat_history_file());
  ChatSession session(llm, made, screen, [&](const std::string& offer) {
    std::string reply;
    const bool has_reply = editor.read(offer, reply) == LineEditor::Result::line;
    return has_reply && (trim(reply).empty() || trim(reply) == "y" || trim(reply) == "Y" || trim(reply) == "yes");
  });
  session.set_system(system);
  const InterruptGuard guard(llm);
  talk(session, editor);
}

}  // namespace

void add_chat(CLI::App& app) {
  auto command = std::make_shared<ChatCommand>();
  CLI::App* sub = app.add_subcommand("chat", "talk with a model");
  sub->footer(
      "Examples:\n"
      "  inferno chat model.gguf                              a conversation; /help inside lists the commands\n"
      "  inferno chat model.gguf --system \"Answer briefly.\"   with something said before\n"
      "  echo \"What is a GPU?\" | inferno chat model.gguf      one question, one answer");
  sub->add_option("model,-m,--model", command->model,
                  "a .gguf file or a Hugging Face folder (default: the built-in model, which only continues stories)");
  sub->add_option("--system", command->system, "what the model is told before everything else");
  sub->add_option("-n", command->max_new, "tokens of an answer at most (default: -1, no limit)")
      ->check(CLI::Range(-1, INT32_MAX));
  command->sampling.add_to(*sub);
  sub->add_flag("--ignore-end", command->ignore_end, "do not stop at the model's end tokens");
  sub->add_flag("--no-think", command->no_think, "ask for answers without thinking, where the model's template can");
  sub->add_flag("--hide-thinking", command->hide_thinking, "fold thinking into one line");
  sub->add_option(
      "--chat-template", command->chat_template,
      "a chat format instead of the model's own: a file with a Jinja template, or one of " + known_template_names());
  command->speculation.add_to(*sub);
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
