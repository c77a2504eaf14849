// A request: everything one completion needs, and nothing of a machine; what comes back; and the ticket to watch it by.
//
// A request may ask for several samples of one prompt. Each is a sequence of its own that draws by (seed, its index in
// the request, position), so its text does not depend on what else runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/sampling.h"
#include "kv/page_pool.h"

namespace inferno {

enum class StopReason : uint8_t {
  length,        // max_new_tokens were made
  end_token,     // the model ended its text
  stop_token,    // one of Request::stop_ids
  stop_string,   // one of Request::stop_strings
  context_full,  // no position is left
  cancelled,     // by the ticket, or by a callback
  failed,        // RequestResult::error says why
};
[[nodiscard]] std::string_view to_string(StopReason reason);

// One token as it is made. Views are valid during the call.
struct TokenEvent {
  int32_t sample = 0;
  int32_t id = -1;  // -1: no token, only text that had been held back in case it became a stop string
  std::string_view text;
  std::span<const TokenLogprob> logprobs;  // the drawn token, then the likeliest ones
};

struct RequestResult;

struct Request {
  std::vector<int32_t> prompt;
  int32_t samples = 1;
  SamplingSettings sampling;
  int32_t max_new_tokens = 128;  // -1: until the context is full; 0: only compute the prompt
  bool stop_at_end = true;       // at the model's end tokens, which are not part of the result; nor are stop_ids
  std::vector<int32_t> stop_ids;
  std::vector<std::string> stop_strings;  // needs a tokenizer
  bool text = true;                       // false: token ids only
  std::vector<LogitBias> bias;
  int32_t top_logprobs = -1;  // -1: none; 0: of the drawn token; n: of the n likeliest too
  // Tokens that may be drawn next, as a bitset of ceil(vocabulary / 32) words that stays valid until the next call for
  // that sample; empty: all. Called before every draw.
  std::function<std::span<const uint32_t>(int32_t sample, std::span<const int32_t> generated)> allowed = {};
  // Logits of the prompt's positions from `logits_from` on, in rows of the vocabulary's size. Called once per chunk.
  std::optional<int32_t> logits_from = {};
  std::function<void(int32_t first_position, std::span<const float> rows)> on_logits = {};
  bool reuse_prefix = true;  // take what is cached of the prompt, and leave it cached
  std::string cache_salt;    // prompts with different salts share nothing
  bool recompute = false;    // the whole sequence for every token: what caching is compared with
  // False ends the sample. An exception ends the request, and is its result's error.
  std::function<bool(const TokenEvent& event)> on_token = {};
  std::function<void(const RequestResult& result)> on_finish = {};
};

// Times are wall time in milliseconds. A forward is what makes a token: the whole prompt counts as one.
struct RequestMetrics {
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;  // of all samples
  int32_t reused_tokens = 0;     // of the prompt, found in the cache
  ReuseEnd reuse_end = ReuseEnd::off;
  int32_t preemptions = 0;
  double queue_ms = 0;                  // until the first chunk of the prompt ran
  double time_to_first_token_ms = 0;    // since submission
  double decode_tokens_per_second = 0;  // of sample 0 after its first token; 0 for fewer than two tokens
  double forward_min_ms = 0;
  double forward_max_ms = 0;
  double forward_mean_ms = 0;
  int32_t forwards = 0;
};

struct Completion {
  std::vector<int32_t> ids;
  std::string text;
  StopReason reason = StopReason::length;
};

struct RequestResult {
  std::vector<Completion> samples;
  RequestMetrics metrics;
  std::exception_ptr error;  // set when a sample failed
};

// What the caller keeps of a request that was submitted.
class Ticket {
 public:
  Ticket() = default;
  virtual ~Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // From any thread and from signal handlers: ends the request before its next step.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Blocks until it is done; another thread must run the scheduler.
  void wait() const noexcept { done_.wait(false, std::memory_order_acquire); }
  // Once it is done.
  [[nodiscard]] const RequestResult& result() const { return result_; }
  [[nodiscard]] RequestResult take_result() { return std::move(result_); }

 protected:
  void finish() noexcept {
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  }
  RequestResult result_;

 private:
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> done_{false};
};

}  // namespace inferno
