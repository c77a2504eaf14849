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
#include "inferno/types.h"

namespace inferno {

struct RequestResult;

// Of a prompt, in tokens.
struct PromptProgress {
  int32_t total = 0;
  int32_t reused = 0;
  int32_t computed = 0;  // and reused
};

// Tokens guessed at a time, at most: with the one that is drawn in any case two tiles of the products.
inline constexpr int32_t kMostDraft = 15;

// Writes what may come after `generated` to `out` and returns how many tokens that are.
using GuessTokens = std::function<int32_t(int32_t sample, std::span<const int32_t> generated, std::span<int32_t> out)>;

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
  AllowedTokens allowed = {};
  // Asked before `allowed`, where it is set: false, and the sample sits out this step. Where the last `guessed` tokens
  // were guessed ahead, false says that they are not worth waiting for.
  std::function<bool(int32_t sample, std::span<const int32_t> generated, int32_t guessed)> mask_ready = {};
  // With `allowed` and `mask_ready`, which then are asked about guesses too: tokens that probably come because nothing
  // else may, as `guess` has them. They are guesses.
  GuessTokens forced = {};
  // Logits of the prompt's positions from `logits_from` on, in rows of the vocabulary's size. Called once per chunk.
  std::optional<int32_t> logits_from = {};
  std::function<void(int32_t first_position, std::span<const float> rows)> on_logits = {};
  bool reuse_prefix = true;  // take what is cached of the prompt, and leave it cached
  std::string cache_salt;    // prompts with different salts share nothing
  uint64_t tag = 0;          // who asked, for the log of steps
  bool recompute = false;    // the whole sequence for every token: what caching is compared with
  // Tokens guessed ahead (draft_length.h), as GenerateOptions has them; none are with `recompute`, nor with `allowed`
  // unless there is `forced`.
  bool lookup = false;
  std::vector<int32_t> prediction = {};
  bool draft = true;
  int32_t max_draft = kMostDraft;
  GuessTokens guess = {};  // instead of both
  // False ends the sample. An exception ends the request, and is its result's error.
  TokenCallback on_token = {};
  std::function<void(const PromptProgress& progress)> on_prompt = {};  // after each step with tokens of the prompt
  std::function<void(const RequestResult& result)> on_finish = {};
};

// What is wrong with how tokens are to be guessed ahead is an Error. `has_states`: of the model.
void check_drafts(const Request& request, bool has_states, int32_t vocabulary);

using RequestMetrics = GenerateMetrics;

// Completion::logprobs stay empty here: a callback sees them.
struct RequestResult : GenerateResult {
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
