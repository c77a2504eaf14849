// Splits an answer into the model's thinking and what it says, as the text comes.
//
// Thinking is a block at the very beginning, between markers that models write as text (<think> ... </think>). Where a
// template has opened the block already, the answer begins inside of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "calls/call_rules.h"

namespace inferno {

// The markers that are known.
[[nodiscard]] std::span<const calls::ThinkingMarkers> thinking_markers();
// Which of them a prompt ends with; -1: none.
[[nodiscard]] int opened_thinking(std::string_view prompt_end);

class ReasoningSplitter {
 public:
  // Called with pieces of text that are never empty, in their order.
  using Sink = std::function<void(bool thinking, std::string_view text)>;

  // `prompt_end`: how the prompt ends; an opening marker there means that the answer begins with thinking.
  ReasoningSplitter(std::string_view prompt_end, Sink sink);

  void push(std::string_view text);
  // The end: what was held back in case it became a marker.
  void finish();
  [[nodiscard]] bool is_thinking() const { return state_ == State::thinking; }

 private:
  enum class State : uint8_t { begin, thinking, gap, answer };

  // Each handles what it can of held_; false: more text is needed.
  bool begin();
  bool think();
  void emit(bool thinking, size_t bytes);

  Sink sink_;
  State state_ = State::begin;
  size_t marker_ = 0;         // which of the known pairs opened the block
  std::string held_;          // text not yet given away
  bool has_thought_ = false;  // something of the block was given away
};

}  // namespace inferno
