// gpt-oss: an answer is messages, each with a header that names a channel and who it is for.
//
//   <|channel|>analysis<|message|>thinking<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//   <|start|>assistant<|channel|>final<|message|>text<|return|>
#include <algorithm>
#include <array>

#include "calls/reader.h"

namespace inferno::calls {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kRecipient = "to=functions.";
constexpr std::array<std::string_view, 4> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

std::string_view recipient_of(std::string_view header) {
  const size_t found = header.find(kRecipient);
  if (found == std::string_view::npos) return {};
  header.remove_prefix(found + kRecipient.size());
  return header.substr(0, header.find_first_of(" \n\t<"));
}

}  // namespace

// Up to and with <|message|>. What does not begin like one is none.
Task<bool> Reader::harmony_header(std::string* header) {
  co_await space();
  const int next = co_await input_.next();
  if (next == '<') {
    // <|channel|> or <|start|>; the second was taken already where it ended the message before.
    const int found = co_await either("<|channel|>", "<|start|>");
    if (found < 0) co_return false;
    *header = kept_;
  } else if (next == 't') {
    INFERNO_TRY(literal(kRecipient));
    *header = kept_;
  } else {
    INFERNO_TRY(literal("assistant"));
  }
  co_return co_await until(kMessage, header);
}

Task<bool> Reader::harmony_body(EventKind kind) {
  std::string held;
  for (;;) {
    const int next = co_await input_.next();
    const bool at_end = next == ByteInput::kEnd;
    if (!at_end) held.push_back(input_.take());
    const auto may_end = [&](std::string_view end) { return end.starts_with(held); };
    while (!held.empty() && (at_end || std::ranges::none_of(kBodyEnds, may_end))) {
      const std::string_view byte = std::string_view(held).substr(0, 1);
      if (kind == EventKind::arguments) events_.arguments(byte);
      if (kind == EventKind::thinking) events_.thinking(byte);
      if (kind == EventKind::text) events_.text(byte);
      held.erase(0, 1);
    }
    if (at_end) co_return false;
    if (std::ranges::count(kBodyEnds, held) > 0) co_return true;
  }
}

Task<bool> Reader::harmony() {
  for (;;) {
    std::string header;
    const bool is_message = co_await harmony_header(&header);
    if (!is_message) break;
    const std::string_view name = recipient_of(header);
    const bool is_analysis = header.find("analysis") != std::string::npos;
    if (!name.empty()) begin_call(name);
    forget();
    const bool goes_on = co_await harmony_body(!name.empty() ? EventKind::arguments
                                               : is_analysis ? EventKind::thinking
                                                             : EventKind::text);
    events_.close();
    if (!goes_on) break;
  }
  co_return true;
}

}  // namespace inferno::calls
