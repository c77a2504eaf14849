// Tokens to text as it may be shown: whole characters only, and nothing of a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/stream_decoder.h"

namespace inferno {

class TextStream {
 public:
  // An empty stop string would stop before the first character and is an Error.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // Adds a token; false when a stop string is complete. New text to show is in fresh() until the next call.
  [[nodiscard]] bool push(int32_t id);
  // The end: what was held back in case it became a stop string, and unfinished characters as U+FFFD.
  void finish();

  [[nodiscard]] std::string_view fresh() const {
    return std::string_view(text_).substr(fresh_begin_, shown_ - fresh_begin_);
  }
  // All text shown so far.
  [[nodiscard]] std::string_view text() const { return std::string_view(text_).substr(0, shown_); }

 private:
  // Longest end of text_ that could still become a stop string.
  [[nodiscard]] size_t held_back() const;

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string text_;  // decoded
  size_t shown_ = 0;  // of text_
  size_t fresh_begin_ = 0;
};

}  // namespace inferno
