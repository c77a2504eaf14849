// Answers of the completion endpoints as JSON: whole, and as the events of a stream.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "tokenizer/tokenizer.h"

namespace inferno::serve {

// What all parts of an answer have in common.
struct ReplyHead {
  bool chat = false;
  bool include_usage = false;
  bool logprobs = false;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// A token of one choice, or text without one (id -1) that had been held back.
struct Delta {
  int32_t choice = 0;
  int32_t id = -1;
  std::string text = {};
  std::vector<TokenLogprob> logprobs = {};  // where asked for: the drawn token, then the likeliest
};

struct Choice {
  std::string text = {};
  StopReason reason = StopReason::length;
  std::vector<Delta> tokens = {};  // where log-probabilities were asked for
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t cached_tokens = 0;
};

// Of UTF-8, as offsets in texts count them.
[[nodiscard]] size_t characters(std::string_view text);
[[nodiscard]] std::string_view finish_reason(StopReason reason);

// Null tokenizer: token ids stand for their text.
class ReplyWriter {
 public:
  ReplyWriter(ReplyHead head, const Tokenizer* tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const;

  // Events, each with its "data: " and empty line.
  [[nodiscard]] std::string opening(int32_t choice) const;  // of a chat answer: its role
  // text_offset: characters of the choice before this token.
  [[nodiscard]] std::string token(const Delta& delta, size_t text_offset) const;
  [[nodiscard]] std::string ending(int32_t choice, StopReason reason) const;
  [[nodiscard]] std::string usage(const Usage& usage) const;
  [[nodiscard]] static std::string done() { return "data: [DONE]\n\n"; }

 private:
  struct Parts;  // keeps the JSON library out of this header
  ReplyHead head_;
  const Tokenizer* tokenizer_;
};

// "data: TEXT\n\n"
[[nodiscard]] std::string event(std::string_view text);

}  // namespace inferno::serve
