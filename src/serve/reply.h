// Answers of the endpoints that make texts: whole, and as the parts of a stream. One writer per API and request.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "inferno/answer.h"
#include "serve/api_error.h"
#include "serve/completion_request.h"
#include "tokenizer/tokenizer.h"

namespace inferno::serve {

// What all parts of an answer have in common. Both pointers outlive the writer.
struct ReplyHead {
  const CompletionRequest* request = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: token ids stand for their text
  std::string id = {};                   // of the HTTP request; answers put the API's prefix before it
  int64_t created = 0;                   // seconds since 1970
  std::string model = {};
  int64_t prompt_tokens = 0;
  std::vector<std::string> prompts = {};  // [prompt] their texts, where they are to be shown
  std::vector<int32_t> end_tokens = {};   // of the model
};

// How far the prompt is, and how long that took.
struct PromptUpdate : PromptProgress {
  double ms = 0;
};

// A token of one choice, or text without one (id -1) that had been held back; or how far its prompt is.
struct Delta {
  int32_t choice = 0;
  int32_t id = -1;
  std::string text = {};
  std::string thinking = {};
  std::vector<ToolCallPiece> calls = {};
  std::vector<TokenLogprob> logprobs = {};  // where asked for: the drawn token, then the likeliest
  std::optional<PromptUpdate> prompt = {};
};

struct Choice {
  std::string text = {};
  std::string thinking = {};
  std::vector<ToolCall> calls = {};
  StopReason reason = StopReason::length;
  std::string stop = {};           // the stop string it ended at; empty: none
  std::vector<int32_t> ids = {};   // all tokens
  std::vector<Delta> tokens = {};  // where log-probabilities were asked for
};

// Of a whole request. docs/serve.md says what clients see of it.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t drafted_tokens = 0;   // guessed ahead
  int64_t accepted_tokens = 0;  // of those: right
  ReuseEnd reuse_end = ReuseEnd::off;
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;  // from the first token to the last
  double total_ms = 0;
};

inline constexpr std::string_view kEventStream = "text/event-stream";

class ReplyWriter {
 public:
  explicit ReplyWriter(ReplyHead head) : head_(std::move(head)) {}
  virtual ~ReplyWriter() = default;
  ReplyWriter(const ReplyWriter&) = delete;
  ReplyWriter& operator=(const ReplyWriter&) = delete;

  [[nodiscard]] virtual std::string whole(std::span<const Choice> choices, const Usage& usage) const = 0;

  // Of a stream, in this order; each may be empty.
  [[nodiscard]] virtual std::string_view stream_type() const { return kEventStream; }
  [[nodiscard]] virtual std::string opening() { return {}; }
  [[nodiscard]] virtual std::string progress(int32_t /*choice*/, const PromptUpdate& /*prompt*/) { return {}; }
  [[nodiscard]] virtual std::string token(const Delta& delta) = 0;
  [[nodiscard]] virtual std::string ending(std::span<const Choice> choices, const Usage& usage) = 0;
  // The last part, instead of ending().
  [[nodiscard]] virtual std::string failure(const ApiError& error) const = 0;

 protected:
  [[nodiscard]] const ReplyHead& head() const { return head_; }
  [[nodiscard]] const CompletionRequest& request() const { return *head_.request; }
  [[nodiscard]] std::string text_of(int32_t id) const;

 private:
  ReplyHead head_;
};

[[nodiscard]] std::unique_ptr<ReplyWriter> make_writer(ReplyHead head);
[[nodiscard]] std::unique_ptr<ReplyWriter> make_native_writer(ReplyHead head);
[[nodiscard]] std::unique_ptr<ReplyWriter> make_anthropic_writer(ReplyHead head);
[[nodiscard]] std::unique_ptr<ReplyWriter> make_responses_writer(ReplyHead head);
[[nodiscard]] std::unique_ptr<ReplyWriter> make_ollama_writer(ReplyHead head);

// Of UTF-8, as offsets in texts count them.
[[nodiscard]] size_t characters(std::string_view text);
// "length" or "stop".
[[nodiscard]] std::string_view finish_reason(StopReason reason);
// Or "tool_calls", where some were made and not cut off.
[[nodiscard]] std::string_view finish_reason(const Choice& choice);
// Bytes that are no UTF-8 (a token may end within a character) become U+FFFD.
[[nodiscard]] std::string dump(const nlohmann::ordered_json& value);
// Milliseconds with three digits, for JSON.
[[nodiscard]] double rounded(double ms);
// llama-server's `timings`. The first token is the prompt's: rates of the others are over one step fewer.
[[nodiscard]] nlohmann::ordered_json timings_json(const Usage& usage);
// llama-server's `prompt_progress`, and its `timings` so far.
void add_progress(nlohmann::ordered_json& body, const PromptUpdate& prompt);
// Tokens per second; 0 when no time was taken.
[[nodiscard]] double per_second(int64_t tokens, double ms);

// "data: TEXT\n\n", with "event: NAME\n" before it where there is a name.
[[nodiscard]] std::string event(std::string_view text, std::string_view name = {});

}  // namespace inferno::serve
