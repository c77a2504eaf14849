#include "serve/answer_splitter.h"

#include <utility>

namespace inferno::serve {

AnswerSplitter::AnswerSplitter(SplitterSettings settings) : settings_(std::move(settings)) {
  restart();
}

void AnswerSplitter::restart() {
  thinking_ = ThinkingSplitter(settings_.begins_thinking);
  parser_.reset();
  if (settings_.calls) parser_.emplace(*settings_.calls, settings_.tools);
  calls_ = 0;
}

AnswerParts AnswerSplitter::push(std::string_view text) {
  AnswerParts parts;
  if (settings_.thinking) {
    add(thinking_.push(text), parts);
  } else {
    add({.thinking = {}, .content = std::string(text)}, parts);
  }
  return parts;
}

AnswerParts AnswerSplitter::finish() {
  AnswerParts parts;
  if (settings_.thinking) add(thinking_.finish(), parts);
  if (parser_) add(parser_->finish(), parts);
  return parts;
}

void AnswerSplitter::add(const ThinkingSplitter::Parts& split, AnswerParts& parts) {
  parts.thinking += split.thinking;
  if (parser_) {
    add(parser_->push(split.content), parts);
  } else {
    parts.content += split.content;
  }
}

void AnswerSplitter::add(const std::vector<calls::Event>& events, AnswerParts& parts) {
  for (const calls::Event& event : events) {
    switch (event.kind) {
      case calls::EventKind::text:
        parts.content += event.text;
        break;
      case calls::EventKind::thinking:
        parts.thinking += event.text;
        break;
      case calls::EventKind::call:
        parts.calls.push_back({.index = calls_, .id = call_id(settings_.id_seed, calls_), .name = event.text});
        ++calls_;
        break;
      case calls::EventKind::arguments:
        if (parts.calls.empty()) parts.calls.push_back({.index = calls_ - 1});
        parts.calls.back().arguments += event.text;
        break;
      case calls::EventKind::call_end:
        break;
    }
  }
}

void join_calls(std::vector<CallDelta> pieces, std::vector<ToolCall>& made) {
  for (CallDelta& piece : pieces) {
    if (!piece.name.empty()) made.push_back({.id = std::move(piece.id), .name = std::move(piece.name)});
    made.back().arguments += piece.arguments;
  }
}

std::string call_id(uint64_t seed, size_t index) {
  constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
  // splitmix64: neighbours have nothing in common.
  uint64_t mixed = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  mixed ^= mixed >> 31;
  std::string id;
  for (; id.size() < 9; mixed /= kDigits.size()) id += kDigits[mixed % kDigits.size()];
  return id;
}

}  // namespace inferno::serve
