// What one types with a slash in a conversation.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/sampling.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/chat_session.h"
#include "cli/sampling_flags.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxConversationBytes = uint64_t{64} << 20;

constexpr std::string_view kHelp =
    "  /system TEXT     what the model is told before everything else (no text: show it; -: none)\n"
    "  /clear           forget the conversation, keep the system text\n"
    "  /undo            take back the last question and its answer\n"
    "  /regen           answer the last question again, with another seed\n"
    "  /save FILE       write the conversation; /load FILE reads one\n"
    "  /set NAME VALUE  temp, top_k, top_p, min_p, repeat_penalty, seed, n (tokens of an answer; -1: no limit)\n"
    "  /think on|off    whether the model thinks first; hide|show: folded or dim; last: what it thought\n"
    "  /stats           speed, and how much was reused from the cache\n"
    "  /exit            leave, as Ctrl-D does\n"
    "Alt-Enter, a \\ at the end of a line, or \"\"\" before and after: several lines. Ctrl-C stops an answer.\n";
constexpr std::array<std::string_view, 14> kCommands = {"/system", "/clear", "/undo",  "/regen", "/save",
                                                        "/load",   "/set",   "/think", "/stats", "/exit",
                                                        "/quit",   "/help",  "/bye",   "/?"};

float parse_number(std::string_view text) {
  const std::optional<double> value = parse_double(text);
  if (!value) fail_usage("\"{}\" is not a number", printable(text, 40));
  return static_cast<float>(*value);
}

int64_t parse_whole(std::string_view text, int64_t least, int64_t most) {
  const std::optional<int64_t> value = parse_int(text);
  if (!value || *value < least || *value > most) {
    fail_usage("\"{}\" is not a whole number from {} to {}", printable(text, 40), least, most);
  }
  return *value;
}

// "word rest of the line" -> both, trimmed.
std::pair<std::string_view, std::string_view> split_word(std::string_view line) {
  line = trim(line);
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  return {line.substr(0, end), trim(line.substr(end))};
}

}  // namespace

bool ChatSession::command(std::string_view line) {
  const auto [name, argument] = split_word(line);
  if (name == "/exit" || name == "/quit" || name == "/bye") return false;
  if (name == "/help" || name == "/?") {
    screen_.show(kHelp);
  } else if (name == "/system") {
    system(argument);
  } else if (name == "/clear") {
    std::erase_if(messages_, [](const ChatMessage& message) { return message.role != "system"; });
    screen_.note("a new conversation");
  } else if (name == "/undo") {
    undo();
  } else if (name == "/regen") {
    regenerate();
  } else if (name == "/save") {
    save(argument);
  } else if (name == "/load") {
    load(argument);
  } else if (name == "/set") {
    set(argument);
  } else if (name == "/think") {
    think(argument);
  } else if (name == "/stats") {
    show_stats();
  } else {
    const std::string_view meant = nearest(name, kCommands);
    fail_usage("there is no {}{} (/help lists the commands)", printable(name, 40),
               meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
  }
  return true;
}

void ChatSession::system(std::string_view argument) {
  const bool has_one = !messages_.empty() && messages_.front().role == "system";
  if (argument.empty()) {
    screen_.note("{}", has_one ? terminal_text(messages_.front().content) : "no system text");
    return;
  }
  set_system(argument == "-" ? "" : std::string(argument));
  screen_.note("{}", argument == "-" ? "no system text" : "the system text is set");
}

void ChatSession::undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const ChatMessage& message) { return message.role == "user"; });
  if (last == messages_.rend()) fail_usage("there is nothing to take back");
  messages_.erase(std::prev(last.base()), messages_.end());
  screen_.note("taken back; {} {} left", turns(), turns() == 1 ? "question is" : "questions are");
}

void ChatSession::regenerate() {
  const std::vector<ChatMessage> before = messages_;
  while (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
  if (messages_.empty() || messages_.back().role != "user") {
    messages_ = before;
    fail_usage("there is no question to answer again");
  }
  ++setup_.generate.sampling.seed;
  answer_or_restore(before);
}

void ChatSession::think(std::string_view argument) {
  if (argument == "hide" || argument == "show") {
    screen_.fold_thinking = argument == "hide";
    screen_.note("thinking is {}", screen_.fold_thinking ? "folded into one line" : "shown");
  } else if (argument == "last") {
    const auto thought = std::find_if(messages_.rbegin(), messages_.rend(),
                                      [](const ChatMessage& message) { return !message.reasoning_content.empty(); });
    screen_.note("{}", thought == messages_.rend() ? "no thinking yet" : terminal_text(thought->reasoning_content));
  } else if (argument == "on" || argument == "off") {
    if (setup_.continues || !llm_.can_switch_thinking(setup_.chat.chat_template)) {
      fail_usage("this model's chat template has no switch for thinking");
    }
    setup_.chat.enable_thinking = argument == "on";
    screen_.note("thinking is {}", argument);
  } else {
    fail_usage("/think takes on, off, hide, show or last");
  }
}

void ChatSession::set(std::string_view argument) {
  GenerateOptions changed = setup_.generate;
  SamplingSettings& sampling = changed.sampling;
  auto [given, value] = split_word(argument);
  std::string name(given);
  std::ranges::replace(name, '-', '_');
  if (name == "temp" || name == "temperature") {
    sampling.temperature = parse_number(value);
  } else if (name == "top_p") {
    sampling.top_p = parse_number(value);
  } else if (name == "min_p") {
    sampling.min_p = parse_number(value);
  } else if (name == "repeat_penalty") {
    sampling.repeat_penalty = parse_number(value);
  } else if (name == "top_k") {
    sampling.top_k = static_cast<int32_t>(parse_whole(value, 0, INT32_MAX));
  } else if (name == "seed") {
    sampling.seed = static_cast<uint64_t>(parse_whole(value, 0, INT64_MAX));
  } else if (name == "n") {
    changed.max_new_tokens = static_cast<int32_t>(parse_whole(value, -1, INT32_MAX));
    if (changed.max_new_tokens == 0) fail_usage("an answer of 0 tokens is none");
  } else if (!name.empty()) {
    fail_usage("there is no setting \"{}\" (temp, top_k, top_p, min_p, repeat_penalty, seed, n)", printable(name, 40));
  }
  check_sampling(sampling);
  setup_.generate = std::move(changed);
  screen_.note("{}, n {}", describe(setup_.generate.sampling), setup_.generate.max_new_tokens);
}

void ChatSession::show_stats() {
  std::string text = fmt::format("  model         {}, on {}\n", setup_.model, llm_.backend());
  text += fmt::format("  sampling      {}\n", describe(setup_.generate.sampling));
  text += fmt::format("  conversation  {} {}, {} of {} positions\n", turns(), turns() == 1 ? "turn" : "turns",
                      known_ids_.size(), llm_.context());
  if (last_) {
    const GenerateMetrics& m = last_->metrics;
    text +=
        fmt::format("  last prompt   {} tokens: {} reused from the cache, {} computed, {:.0f} per second\n",
                    m.prompt_tokens, m.reused_tokens, m.prompt_tokens - m.reused_tokens, m.prompt_tokens_per_second);
    text += fmt::format("  last answer   {} tokens, {:.1f} per second, the first after {:.0f} ms; ended by {}\n",
                        m.generated_tokens, m.decode_tokens_per_second, m.time_to_first_token_ms,
                        to_string(last_->reason()));
  }
  screen_.show(text);
}

void ChatSession::save(std::string_view file) const {
  if (file.empty()) fail_usage("/save needs the name of a file");
  AtomicOutputFile out{std::string(file)};
  out.write(conversation_json(messages_, setup_.model));
  out.commit();
  screen_.note("{} messages in {}", messages_.size(), printable(file));
}

void ChatSession::load(std::string_view file) {
  if (file.empty()) fail_usage("/load needs the name of a file");
  messages_ = parse_conversation(read_text(std::string(file), kMaxConversationBytes), file);
  screen_.note("{} messages, {} {}", messages_.size(), turns(), turns() == 1 ? "question" : "questions");
}

}  // namespace inferno::cli
