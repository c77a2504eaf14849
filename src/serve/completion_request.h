// What the endpoints that make texts ask for, from JSON to what the engine takes. docs/serve.md lists the fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/tool_request.h"
#include "inferno/types.h"
#include "serve/dialect.h"

namespace inferno::serve {

struct CompletionLimits {
  int32_t context = 0;        // positions
  int32_t choices = 64;       // of one request: prompts times n
  int32_t stops = 16;         // stop strings
  int32_t stop_bytes = 1024;  // of each
  bool has_template = true;   // the model has a chat template
  bool thinks = true;         // `enable_thinking` of requests that do not say
};

// Log-probabilities of one answer: choices times tokens times entries of a token.
inline constexpr int64_t kMaxLogprobEntries = 4'000'000;

// Of a prompt that is made of texts and token ids in turn: one or the other.
struct PromptPart {
  std::string text = {};
  std::vector<int32_t> ids = {};
};

// A bias for all tokens of a text.
struct TextBias {
  std::string text;
  float bias = 0;
};

struct CompletionRequest {
  Dialect dialect = Dialect::openai_text;
  bool stream = false;
  bool include_usage = false;                       // a chunk with the usage at the end of a stream
  bool show_progress = false;                       // a stream tells how much of the prompt is computed
  bool echo = false;                                // the answer begins with the prompt
  bool split_thinking = false;                      // the answer's thinking is a field of its own
  bool token_ids = false;                           // native: the answer has the ids of its tokens
  bool show_prompt = false;                         // the answer has the text of its prompt
  std::string prefill = {};                         // of a conversation: what its answer goes on with
  std::vector<std::vector<PromptPart>> parts = {};  // [prompt] native: those that are texts and ids in turn
  std::vector<TextBias> text_bias = {};             // native: of texts instead of ids
  std::vector<std::string> response_fields = {};    // native: all that the answer shall have; empty: everything
  std::string instructions = {};
  std::optional<bool> lookup = {};    // guess tokens from the text; empty: as the server does
  std::string prediction = {};        // a text that the answer may resemble
  Constraint constraint = {};         // what the answer must be
  std::string constraint_field = {};  // the field that says so
  ToolRequest tools = {};
  std::vector<Prompt> prompts;  // none: only whether the model is there was asked
  Request settings;             // all but the prompt and the callbacks; max_new_tokens -1 where none was given

  [[nodiscard]] int32_t choices() const { return static_cast<int32_t>(prompts.size()) * settings.samples; }
  [[nodiscard]] bool logprobs() const { return settings.top_logprobs >= 0; }
};

// `text` is what `body` was parsed from. What is wrong is an ApiError that names the field. A request without a seed
// gets `seed`.
[[nodiscard]] CompletionRequest parse_completion(const nlohmann::json& body, std::string_view text, Dialect dialect,
                                                 const CompletionLimits& limits, uint64_t seed);
// What llama-server's own API draws tokens by, unless asked otherwise.
[[nodiscard]] SamplingSettings native_sampling();
// Whether its answer will be a stream; known before its model is.
[[nodiscard]] bool wants_stream(const nlohmann::json& body, Dialect dialect);

}  // namespace inferno::serve
