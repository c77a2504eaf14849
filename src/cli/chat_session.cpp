#include "cli/chat_session.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/signals.h"
#include "engine/reasoning.h"

namespace inferno::cli {
namespace {

// Fewer positions than these, or an eighth of a small context, are no room for an answer.
constexpr int32_t kLeastAnswer = 256;
// The end of a prompt that may hold an opened block of thinking.
constexpr size_t kPromptEndTokens = 16;

// One text of all that was typed and made.
std::string as_text(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages) {
    const bool joins = text.empty() || message.content.empty() || message.role == "assistant" ||
                       std::string_view(" \n").find(text.back()) != std::string_view::npos ||
                       std::string_view(" \n.,;:!?").find(message.content.front()) != std::string_view::npos;
    text += (joins ? "" : " ") + message.content;
  }
  return text;
}

}  // namespace

ChatSession::ChatSession(Llm& llm, ChatSetup setup, ChatScreen& screen, Confirm confirm)
    : llm_(llm), setup_(std::move(setup)), screen_(screen), confirm_(std::move(confirm)) {}

void ChatSession::set_system(std::string text) {
  const bool has_one = !messages_.empty() && messages_.front().role == "system";
  if (has_one) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {.role = "system", .content = std::move(text)});
}

int ChatSession::turns() const {
  return static_cast<int>(std::ranges::count(messages_, "user", &ChatMessage::role));
}

void ChatSession::ask(std::string text) {
  const std::vector<ChatMessage> before = messages_;
  messages_.push_back({.role = "user", .content = std::move(text)});
  answer_or_restore(before);
}

void ChatSession::answer_or_restore(const std::vector<ChatMessage>& before) {
  try {
    if (!answer()) messages_ = before;
  } catch (...) {
    screen_.finish_answer();
    messages_ = before;
    throw;
  }
}

std::vector<int32_t> ChatSession::encode(const std::vector<ChatMessage>& messages) const {
  if (setup_.continues) return llm_.encode(as_text(messages), known_ids_);
  return llm_.encode(Prompt(messages, setup_.chat), known_ids_);
}

std::vector<ChatMessage> ChatSession::without_oldest(int& dropped) const {
  std::vector<ChatMessage> kept = messages_;
  const auto is_question = [](const ChatMessage& message) { return message.role == "user"; };
  for (dropped = 0;; ++dropped) {
    const bool is_small = static_cast<int32_t>(encode(kept).size()) <= llm_.context() / 2;
    const auto first = std::ranges::find_if(kept, is_question);
    if ((dropped > 0 && is_small) || first == kept.end()) return kept;
    const auto second = std::find_if(first + 1, kept.end(), is_question);
    if (second == kept.end()) return kept;  // the question itself
    kept.erase(first, second);
  }
}

std::optional<std::vector<int32_t>> ChatSession::fit() {
  const int32_t context = llm_.context();
  const int32_t most = context - std::min(kLeastAnswer, context / 8);
  std::vector<int32_t> ids = encode(messages_);
  const auto size = [&] { return static_cast<int32_t>(std::min<size_t>(ids.size(), INT32_MAX)); };
  if (size() <= most) return ids;
  int dropped = 0;
  const int32_t was = size();
  std::vector<ChatMessage> kept = without_oldest(dropped);
  ids = encode(kept);
  if (dropped == 0 || size() > most) {
    fail(
        "this takes {} of the {} positions of `context`, which leaves no room for an answer; make it shorter, or the "
        "context longer",
        size(), context);
  }
  if (!confirm_) fail("the context of {} positions is full: the conversation takes {}", context, was);
  screen_.note("the context of {} positions is full: the conversation takes {}", context, was);
  if (!offer(fmt::format("drop the {} oldest {}? [Y/n] ", dropped, dropped == 1 ? "turn" : "turns"))) {
    screen_.note("nothing was asked; /clear starts anew");
    return std::nullopt;
  }
  messages_ = std::move(kept);
  return ids;
}

bool ChatSession::answer() {
  const std::optional<std::vector<int32_t>> ids = fit();
  if (!ids) return false;
  const std::span<const int32_t> tail = std::span(*ids).last(std::min(ids->size(), kPromptEndTokens));
  ChatMessage made{.role = "assistant"};
  ReasoningSplitter splitter(setup_.continues ? "" : llm_.detokenize(tail), [&](bool thinking, std::string_view text) {
    (thinking ? made.reasoning_content : made.content) += text;
    if (thinking) {
      screen_.show_thinking(text);
    } else {
      screen_.show_answer(text);
    }
  });
  bool stopped = false;
  if (take_interrupt()) {  // since the question was sent
    screen_.note("stopped");
    return false;
  }
  last_ = llm_.generate(*ids, setup_.generate, [&](const TokenEvent& token) {
    splitter.push(token.text);
    stopped = stopped || take_interrupt();
    return !stopped;
  });
  splitter.finish();
  screen_.finish_answer();
  known_ids_ = *ids;
  known_ids_.insert(known_ids_.end(), last_->ids().begin(), last_->ids().end());
  const bool has_answer = !made.content.empty() || !made.reasoning_content.empty();
  if (has_answer) messages_.push_back(std::move(made));
  explain_end(last_->reason(), has_answer);
  return has_answer;
}

void ChatSession::explain_end(StopReason reason, bool has_answer) {
  if (!has_answer) screen_.note("no answer; the question is taken back");
  switch (reason) {
    case StopReason::length:
      screen_.note("cut after {} tokens; /set n -1 lets the next answer end by itself", setup_.generate.max_new_tokens);
      break;
    case StopReason::cancelled:
      if (has_answer) screen_.note("stopped");
      break;
    case StopReason::context_full:
      screen_.note("cut: the context of {} positions is full; the next question offers to drop the oldest turns",
                   llm_.context());
      break;
    default:
      break;
  }
}

}  // namespace inferno::cli
