// What POST /v1/completions and /v1/chat/completions ask for, from JSON to what the engine takes. docs/serve.md lists
// the fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "inferno/types.h"

namespace inferno::serve {

struct CompletionLimits {
  std::string model;          // its name; requests for another are 404
  int32_t context = 0;        // positions
  int32_t choices = 64;       // of one request: prompts times n
  int32_t stops = 16;         // stop strings
  int32_t stop_bytes = 1024;  // of each
};

// Log-probabilities of one answer: choices times tokens times entries of a token.
inline constexpr int64_t kMaxLogprobEntries = 4'000'000;

struct CompletionRequest {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;  // a chunk with the usage at the end of a stream
  bool echo = false;           // the answer begins with the prompt
  std::vector<Prompt> prompts;
  Request settings;  // all but the prompt and the callbacks; max_new_tokens -1 where none was given

  [[nodiscard]] int32_t choices() const { return static_cast<int32_t>(prompts.size()) * settings.samples; }
};

// What is wrong is an ApiError that names the field. A request without a seed gets `seed`.
[[nodiscard]] CompletionRequest parse_completion(std::string_view body, bool chat, const CompletionLimits& limits,
                                                 uint64_t seed);

}  // namespace inferno::serve
