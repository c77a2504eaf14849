// What goes into a generation and comes out of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "inferno/error.h"
#include "inferno/sampling.h"

namespace inferno {

struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // JSON
};

struct ChatMessage {
  std::string role = {};  // "system", "user", "assistant", "tool"; the model's template decides which it knows
  std::string content = {};
  std::string reasoning_content = {};  // what an answer's thinking was
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};  // of a tool's result
  std::string name = {};          // of the tool, or of who speaks
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the opening of the assistant's answer
  bool enable_thinking = true;        // false: asks the template for an answer without thinking
  std::string tools = {};             // JSON: an array of tools as in OpenAI's API; empty: none
  std::string tool_choice = "auto";   // "auto", "none", "required", or the name of the tool to call
  bool parallel_tool_calls = true;    // false: an answer calls one tool at most
  std::string chat_template = {};     // a known name ("chatml") or the text of a template; empty: the model's own
};

// What to continue: a text, token ids, or a conversation in the model's own chat format. In a text, added tokens such
// as <|im_end|> are recognised; in messages they stay text.
class Prompt {
 public:
  struct Chat {
    std::vector<ChatMessage> messages = {};
    ChatOptions options = {};
  };

  Prompt(const char* text) : content(std::string(text)) {}
  Prompt(std::string_view text) : content(std::string(text)) {}
  Prompt(std::string text) : content(std::move(text)) {}
  Prompt(std::vector<int32_t> ids) : content(std::move(ids)) {}
  Prompt(std::vector<ChatMessage> messages, ChatOptions options = {})
      : content(Chat{.messages = std::move(messages), .options = std::move(options)}) {}

  std::variant<std::string, std::vector<int32_t>, Chat> content;
};

// Tokens that may be drawn next, as a bitset of ceil(vocabulary / 32) words that stays valid until the next call for
// that sample; empty: all. Called before every draw.
using AllowedTokens = std::function<std::span<const uint32_t>(int32_t sample, std::span<const int32_t> generated)>;

// What a text must be (docs/structured-output.md); at most one of these is given, and the text ends where it is
// complete. What cannot be enforced exactly is an Error that names it.
struct Constraint {
  std::string json_schema = {};          // a JSON schema, as JSON; {"type":"object"}: any object
  std::string regex = {};                // a regular expression that the whole text fits
  std::string grammar = {};              // rules in the form of GBNF, beginning with `root`
  std::vector<std::string> choice = {};  // one of these texts

  [[nodiscard]] bool empty() const { return json_schema.empty() && regex.empty() && grammar.empty() && choice.empty(); }
};

struct GenerateOptions {
  int32_t max_new_tokens = 128;  // -1: until the context is full; 0: only compute the prompt
  SamplingSettings sampling = {};
  int32_t samples = 1;                 // texts from the same prompt; each draws by the seed and its own index
  std::vector<std::string> stop = {};  // ends where one of these would appear
  std::vector<int32_t> stop_ids = {};  // ends at these tokens, which are not part of the result
  bool stop_at_end = true;             // at the model's own end tokens; they are no part of the result either
  std::vector<LogitBias> logit_bias = {};
  AllowedTokens allowed = {};
  Constraint constraint = {};   // instead of a mask
  int32_t top_logprobs = -1;    // -1: none; 0: of the drawn token; n: of the n likeliest too
  std::string cache_salt = {};  // prompts with different salts share nothing in the cache
  bool reuse_prefix = true;     // take what is cached of the prompt, and leave it cached
  bool recompute = false;       // the whole sequence for every token: what caching is compared with
  // Guess tokens ahead and check several in one step (docs/speculation.md). The text is the same, sooner or, at most a
  // few percent, later: from what followed the same words before in the prompt, the text and `prediction`; and by the
  // draft model, where one is loaded.
  bool lookup = false;
  std::vector<int32_t> prediction = {};  // a text that the result may resemble; with `lookup`
  bool draft = true;
  int32_t max_draft = 15;  // tokens guessed at a time; 0: none
};

// One token as it is made. Views are valid during the call.
struct TokenEvent {
  int32_t sample = 0;
  int32_t id = -1;             // -1: no token, only text that had been held back in case it became a stop string
  std::string_view text = {};  // whole characters only
  std::span<const TokenLogprob> logprobs = {};  // the drawn token, then the likeliest ones
};
// False ends the sample. An exception ends the generation and is thrown where its result is asked for.
using TokenCallback = std::function<bool(const TokenEvent& token)>;

enum class StopReason : uint8_t {
  length,        // max_new_tokens were made
  end_token,     // the model ended its text
  stop_token,    // one of stop_ids
  stop_string,   // one of stop
  context_full,  // no position is left
  cancelled,     // by its handle, by a callback, or because the Llm went away
  failed,        // an Error
};
[[nodiscard]] INFERNO_API std::string_view to_string(StopReason reason);  // "end_token"

// Why reuse of a prompt's cached beginning ended where it did.
enum class ReuseEnd : uint8_t {
  off,         // the request reuses nothing
  complete,    // everything that can be reused was: the last token is always computed
  unseen,      // nothing that begins like this was cached
  differs,     // a cached text has another token there
  evicted,     // it was cached, and gave way to other pages
  incomplete,  // what was cached ends there
  recurrent,   // more was cached, but not the recurrent state that goes with it
};
[[nodiscard]] INFERNO_API std::string_view to_string(ReuseEnd end);

// Times are wall time in milliseconds. A forward is what makes a token, or several that were guessed: the whole prompt
// counts as one.
struct GenerateMetrics {
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;  // of all samples
  int32_t reused_tokens = 0;     // of the prompt, found in the cache
  ReuseEnd reuse_end = ReuseEnd::off;
  int32_t drafted_tokens = 0;   // guessed ahead, of all samples
  int32_t accepted_tokens = 0;  // of those: right
  int32_t preemptions = 0;
  double queue_ms = 0;                  // until the first chunk of the prompt ran
  double time_to_first_token_ms = 0;    // since submission
  double prompt_tokens_per_second = 0;  // of those computed; 0 when no token was made
  double decode_tokens_per_second = 0;  // of sample 0 after its first token; 0 for fewer than two tokens
  double forward_min_ms = 0;
  double forward_max_ms = 0;
  double forward_mean_ms = 0;
  int32_t forwards = 0;
};

struct Completion {
  std::vector<int32_t> ids = {};
  std::string text = {};
  StopReason reason = StopReason::length;
  // Of each id, where they were asked for: the drawn token, then the likeliest, best first.
  std::vector<std::vector<TokenLogprob>> logprobs = {};
};

struct GenerateResult {
  std::vector<Completion> samples = {};  // at least one
  GenerateMetrics metrics = {};

  // Of the first sample.
  [[nodiscard]] const std::string& text() const { return samples.front().text; }
  [[nodiscard]] const std::vector<int32_t>& ids() const { return samples.front().ids; }
  [[nodiscard]] StopReason reason() const { return samples.front().reason; }
};

// Logits of consecutive positions.
struct Logits {
  int32_t first_position = 0;
  int64_t rows = 0;
  int64_t vocabulary = 0;
  std::vector<float> values = {};  // [rows][vocabulary]

  [[nodiscard]] std::span<const float> row(int64_t i) const {
    return std::span(values).subspan(static_cast<size_t>(i * vocabulary), static_cast<size_t>(vocabulary));
  }
};

// How well a model predicts a text.
struct Perplexity {
  double value = 0;  // exp of the mean negative log-likelihood
  double error = 0;  // standard error of value
  int64_t scored = 0;
};

// Counts since the model was loaded, and its state now.
struct EngineStats {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed
  int64_t reused_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t drafts = 0;  // times that tokens were guessed ahead
  int64_t drafted_tokens = 0;
  int64_t accepted_tokens = 0;
  int64_t finished_requests = 0;
  int64_t preemptions = 0;
  int32_t running = 0;  // sequences
  int32_t waiting = 0;
  double cost_error = 0;  // of the predicted times of steps, relative
};

// Called first with nothing done and at last with all of it, always from the thread that called for the work. The units
// are the work's own, bytes for example. Work that fails ends without the last call.
using OnProgress = std::function<void(uint64_t done, uint64_t total)>;

}  // namespace inferno
