// Token ids to UTF-8 text as they come, never half a character.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace inferno {

// Appends text that is always valid UTF-8: bytes that may still become a character wait inside; bytes that cannot
// become U+FFFD, one per longest prefix of a sequence (the usual practice, and what Hugging Face's decoder shows).
// One per sequence of tokens; the tokenizer must outlive it. Not thread safe.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void push(int32_t id, std::string& out) { push_bytes(tokenizer_->piece(id), out); }
  void push_bytes(std::string_view bytes, std::string& out);
  // The end of the text: an unfinished sequence becomes U+FFFD. The decoder is then as new.
  void finish(std::string& out);

 private:
  const Tokenizer* tokenizer_;
  std::array<char, 4> pending_{};  // a proper prefix of a UTF-8 sequence
  size_t pending_size_ = 0;
};

}  // namespace inferno
