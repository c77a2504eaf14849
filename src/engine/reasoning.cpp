#include "engine/reasoning.h"

#include <algorithm>
#include <array>
#include <utility>

namespace inferno {
namespace {

// Qwen, DeepSeek, SmolLM and most others; Seed-OSS; Magistral; gpt-oss, whose messages name their channels.
constexpr std::array<calls::ThinkingMarkers, 4> kMarkers = {
    {{"<think>", "</think>"},
     {"<seed:think>", "</seed:think>"},
     {"[THINK]", "[/THINK]"},
     {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"}}};
// What gpt-oss begins an answer with when it did not think.
constexpr std::string_view kAnswerMarker = "<|channel|>final<|message|>";
constexpr std::string_view kSpace = " \t\r\n";

size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kSpace), text.size());
}

// The longest end of `text` with which `marker` begins.
size_t partial_marker(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

std::span<const calls::ThinkingMarkers> thinking_markers() {
  return kMarkers;
}

int opened_thinking(std::string_view prompt_end) {
  const size_t last = prompt_end.find_last_not_of(kSpace);
  const std::string_view end = prompt_end.substr(0, last == std::string_view::npos ? 0 : last + 1);
  const auto* found = std::ranges::find_if(kMarkers, [&](const auto& markers) { return end.ends_with(markers.open); });
  return found == kMarkers.end() ? -1 : static_cast<int>(found - kMarkers.begin());
}

ReasoningSplitter::ReasoningSplitter(std::string_view prompt_end, Sink sink) : sink_(std::move(sink)) {
  const int opened = opened_thinking(prompt_end);
  if (opened < 0) return;
  state_ = State::thinking;
  marker_ = static_cast<size_t>(opened);
}

void ReasoningSplitter::emit(bool thinking, size_t bytes) {
  if (bytes == 0) return;
  sink_(thinking, std::string_view(held_).substr(0, bytes));
  held_.erase(0, bytes);
}

bool ReasoningSplitter::begin() {
  const std::string_view text = std::string_view(held_).substr(leading_space(held_));
  for (size_t i = 0; i < kMarkers.size(); ++i) {
    if (text.starts_with(kMarkers[i].open)) {
      held_.erase(0, held_.size() - text.size() + kMarkers[i].open.size());
      marker_ = i;
      state_ = State::thinking;
      return true;
    }
    if (kMarkers[i].open.starts_with(text)) return false;  // nothing but space counts as a beginning, too
  }
  if (text.size() < kAnswerMarker.size() && kAnswerMarker.starts_with(text)) return false;
  if (text.starts_with(kAnswerMarker)) held_.erase(0, held_.size() - text.size() + kAnswerMarker.size());
  state_ = State::answer;
  return true;
}

bool ReasoningSplitter::think() {
  if (!has_thought_) held_.erase(0, leading_space(held_));
  const std::string_view close = kMarkers[marker_].close;
  const size_t end = held_.find(close);
  if (end == std::string::npos) {
    // Space before the closing marker is no part of the thinking either.
    size_t safe = held_.size() - partial_marker(held_, close);
    while (safe > 0 && kSpace.find(held_[safe - 1]) != std::string_view::npos) --safe;
    has_thought_ = has_thought_ || safe > 0;
    emit(true, safe);
    return false;
  }
  const size_t last = std::string_view(held_).substr(0, end).find_last_not_of(kSpace);
  const size_t thought = last == std::string_view::npos ? 0 : last + 1;
  emit(true, thought);
  held_.erase(0, end - thought + close.size());
  state_ = State::gap;
  return true;
}

void ReasoningSplitter::push(std::string_view text) {
  held_ += text;
  if (state_ == State::begin && !begin()) return;
  if (state_ == State::thinking && !think()) return;
  if (state_ == State::gap) {
    held_.erase(0, leading_space(held_));
    if (held_.empty()) return;
    state_ = State::answer;
  }
  emit(false, held_.size());
}

void ReasoningSplitter::finish() {
  emit(state_ == State::thinking, held_.size());
}

}  // namespace inferno
