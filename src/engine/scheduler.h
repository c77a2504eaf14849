// Many requests over one decoder: the only loop that makes tokens.
//
// submit(), cancel_all(), close(), stats() and Ticket::cancel() may be called from any thread; one thread at a time
// runs step(), run() and wait_for_work(). A step holds all sequences that decode, one token each, and then as many
// prompt tokens as fit into the rest of a time target, chosen by a cost model that is fitted to the steps that ran
// (step_cost.h). So a long prompt slows the others down by a bounded amount and never stops them.
//
// A sequence that decodes may have guesses of what follows in the step (draft_length.h), each with a logit row of its
// own. What is drawn there is what would have been drawn later: guesses up to the first wrong one are tokens, the rest
// is forgotten.
//
// Prompts go by the fewest tokens left, where every second of waiting counts like kAgeingTokens fewer: nothing starves.
// What the cache holds of a prompt is not computed again; a prompt whose beginning is being computed for another
// request waits for it. When no page is left, the youngest request gives its pages back and is recomputed later. On a
// CPU none of this changes a bit of anybody's result.
//
// Callbacks run on the stepping thread, between steps, and may submit and cancel. An exception in one of them, or an
// Error of the backend in a step, ends the requests concerned; the others go on. A step of decodes allocates nothing,
// takes no lock and makes no system call.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/step_log.h"
#include "engine/step_turn.h"
#include "kv/kv_cache.h"
#include "kv/state_snapshots.h"
#include "model/decoder.h"

namespace inferno {

class DraftModel;
class PageSaver;
class Tokenizer;

struct SchedulerOptions {
  // Target for a step while sequences decode. 0: 100 on a CPU, 25 on a device, more where these would leave prompts
  // little of it: on a slow machine they would starve otherwise.
  double max_token_latency_ms = 0;
  // Target for a step of prompts alone; 0: half a second, soon enough for cancels, arrivals and signals to be seen.
  // kWholeSteps: as much as a step holds, for work that nobody waits for.
  static constexpr double kWholeSteps = std::numeric_limits<double>::infinity();
  double prompt_step_ms = 0;
  double draft_price = 0;  // of a token guessed ahead, in tokens (draft_length.h); 0: what steps are expected to cost
};

// What the scheduler is made over; all of it outlives the scheduler.
struct SchedulerParts {
  Backend& backend;
  Decoder& decoder;
  KvCache& cache;
  int32_t vocabulary = 0;
  int32_t most_context = 0;  // positions the model was made for; the cache may have fewer
  const std::vector<int32_t>& end_tokens;
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  PageSaver* saver = nullptr;            // null: pages are not kept
  DraftModel* draft_model = nullptr;     // null: there is none
  // What is wrong where the logits after these tokens of that sequence are no numbers (explain.h).
  std::function<std::string(const KvSequence& sequence, std::span<const int32_t> tokens)> explain;
  StepCost cost;
  StepTurn* turn = nullptr;  // of steps; null: nobody else uses the backend
};

// A figure that the stepping thread alone writes and any thread reads.
template <typename T>
class Gauge {
 public:
  Gauge& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  Gauge& operator+=(T amount) { return *this = *this + amount; }
  operator T() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

// Of the cache. Used ones are held by sequences, cached ones by nobody: they give way when room is needed.
struct PageCounts {
  int32_t total = 0;
  int32_t used = 0;
  int32_t cached = 0;
  int64_t evictions = 0;
};

class Scheduler {
 public:
  static constexpr double kAgeingTokens = 128;
  // Snapshots of states: one for each sequence and one more, as far as memory for so many is worth it.
  static constexpr int32_t kMostSnapshots = 8;
  [[nodiscard]] static int32_t snapshots(int32_t max_sequences) { return std::min(max_sequences + 1, kMostSnapshots); }
  // Prompts that may be computed at once without being finished in the same step.
  static constexpr int32_t kOpenPrompts = 2;
  // The smallest chunk of a prompt worth a step's attention; least_chunk() makes whole tiles of it.
  static constexpr int32_t kLeastChunk = 8;
  // Fewer positions are computed faster than a page is copied.
  static constexpr int32_t kLeastCopied = 8;

  Scheduler(const SchedulerParts& parts, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A request that cannot be carried out is an Error that says why. After close() every request is.
  [[nodiscard]] std::shared_ptr<Ticket> submit(Request request);
  // Runs one step if there is something to do; returns whether there may be more.
  bool step();
  // Steps until that request is done.
  void run(const Ticket& ticket);
  // Blocks until there is something to do, or until close() or the time is over; returns whether there is.
  bool wait_for_work(std::chrono::milliseconds timeout);
  // When there is nothing to do: keeps a page, if any are to be. How long to wait for work before the next.
  [[nodiscard]] std::chrono::milliseconds tidy();
  // Ends all requests that were submitted before as cancelled, before the next step. Safe in signal handlers.
  void cancel_all() noexcept { cancels_.fetch_add(1, std::memory_order_relaxed); }
  // The same, and refuses new ones.
  void close();

  // Each figure is right by itself; while steps run they may be of different moments.
  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] const StepCost& cost() const { return cost_; }
  // The last steps; from any thread.
  [[nodiscard]] const StepLog& log() const { return log_; }
  [[nodiscard]] PageCounts pages() const;

 private:
  // ---- requests (scheduler.cpp)
  void check(const Request& request) const;
  void receive();
  void drop_cancelled();
  void accept(Sequence& sequence, int32_t token, std::span<const TokenLogprob> logprobs);
  bool emit(Sequence& sequence, int32_t id, std::string_view text, std::span<const TokenLogprob> logprobs);
  void finish(Sequence& sequence, StopReason reason);
  void fail(ActiveRequest& request, const std::exception_ptr& error);
  void complete(ActiveRequest& request);
  void remove_done();

  // ---- what goes into a step (scheduler_plan.cpp)
  void plan_decodes();
  void plan_prompts();
  [[nodiscard]] double decode_seconds() const;
  [[nodiscard]] Sequence* next_prompt(SchedulerClock::time_point now) const;
  [[nodiscard]] bool is_ready(const Sequence& sequence) const;
  // How many tokens of the prompt the step has room for in `limit` seconds, and by its sizes alone.
  [[nodiscard]] int32_t chunk_within(const Sequence& sequence, double limit) const;
  [[nodiscard]] int32_t largest_chunk(const Sequence& sequence) const;
  [[nodiscard]] int32_t least_chunk(const Sequence& sequence) const;
  // Of so many tokens as many as are sure to take about as long as expected.
  [[nodiscard]] int32_t familiar_chunk(const Sequence& sequence, int32_t tokens) const;
  // The same where not even the least chunk fits: one every few steps.
  [[nodiscard]] int32_t chunk_on_credit(const Sequence& sequence, double limit);
  void add_to_step(Sequence& sequence, int32_t tokens);

  // ---- tokens guessed ahead (scheduler_drafts.cpp)
  void prepare_drafts(Sequence& sequence);
  void plan_drafts();
  void plan_model_drafts(double limit);
  void guess_by(const GuessTokens& guess, Sequence& sequence, Sequence::DraftSource source, double limit);
  [[nodiscard]] int32_t ask_for_guess(const GuessTokens& guess, Sequence& sequence, std::span<int32_t> room);
  // Tokens that may be guessed for the sequence by its own limits and the step's, and of so many those that `limit`
  // seconds have room for.
  [[nodiscard]] int32_t draft_room(const Sequence& sequence) const;
  [[nodiscard]] int32_t drafts_within(const Sequence& sequence, int32_t count, double limit) const;
  // What checking one more token takes, in tokens that the step makes.
  [[nodiscard]] double draft_price(const Sequence& sequence) const;
  void add_draft(Sequence& sequence);
  void count_drafts(Sequence& sequence, int32_t accepted);

  // ---- pages (scheduler_pages.cpp)
  enum class Admission : uint8_t { running, deferred, no_pages };
  Admission admit(Sequence& sequence);
  // Where states go with pages: only as many of the pages as there is a state at the end of. Its slot, or -1.
  [[nodiscard]] int32_t keep_pages_with_state(const Sequence& sequence, PagePool::Match& match);
  // The end of the last page of the prompt that may be reused, where steps end for a snapshot of the state; 0: nowhere.
  [[nodiscard]] int32_t snapshot_position(const Sequence& sequence) const;
  void promise_pages(Sequence& sequence);
  void list_pages(Sequence& sequence);
  [[nodiscard]] bool make_room(Sequence& sequence);
  void preempt(Sequence& sequence);
  void leave(Sequence& sequence);

  // ---- the step
  void run_step();
  void add_to_batch(Sequence& sequence, size_t& row);
  void remove_guesses();
  void take_tokens(Sequence& sequence, int32_t first_row, SchedulerClock::time_point end);
  [[nodiscard]] bool is_cancelled(const ActiveRequest& request) const;
  // Whether the mask of a sequence that decodes is not there yet.
  [[nodiscard]] bool is_late(Sequence& sequence) const;
  void fetch_masks();
  void fetch_row_masks(Sequence& sequence);
  [[nodiscard]] std::span<const uint32_t> fetch_mask(const Sequence& sequence) const;
  void cut_draft(Sequence& sequence, int32_t count);
  // The shape of what is in the step now.
  void measure_step();
  void log_step(double seconds);
  void deliver_logits();
  void report_prompt(Sequence& s);

  Backend& backend_;
  Decoder& decoder_;
  KvCache& cache_;
  StateSnapshots snapshots_;
  int32_t vocabulary_;
  int32_t most_context_;
  const std::vector<int32_t>& end_tokens_;
  const Tokenizer* tokenizer_;
  PageSaver* saver_;
  DraftModel* draft_model_;
  StepTurn* turn_;
  decltype(SchedulerParts::explain) explain_;
  StepCost cost_;
  DecodeTime decode_only_;
  double latency_seconds_;
  bool latency_may_grow_;
  double prompt_step_seconds_;
  double fixed_draft_price_;
  int32_t max_positions_;  // of a sequence that has all pages

  std::mutex mutex_;  // of the next four
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<ActiveRequest>> inbox_;
  uint64_t arrivals_ = 0;
  bool closed_ = false;
  std::atomic<uint64_t> cancels_{0};
  std::atomic<bool> has_mail_{false};  // inbox_ or closed_ changed: looked at before every step without a lock

  std::vector<std::shared_ptr<ActiveRequest>> requests_;  // not done, by arrival
  std::vector<Sequence*> running_;                        // hold pages, by arrival
  std::vector<Sequence*> waiting_;
  int32_t done_requests_ = 0;    // of requests_: not completed yet
  std::vector<Sequence*> step_;  // in the step being made, in its order
  StepShape shape_;
  double target_seconds_ = 0;    // of that step
  bool step_has_masks_ = false;  // some sequence of the step may have a mask, wants to see logits
  bool step_shows_logits_ = false;
  bool any_late_ = false;            // some sequence sits the step out
  int32_t mask_rows_ = 0;            // of row_masks_, in use
  bool step_may_draft_ = false;      // some sequence of the step may have guesses
  double step_alone_seconds_ = 0;    // of the step without any, as expected
  std::vector<Sequence*> drafting_;  // those whose guesses the draft model makes
  double credit_seconds_ = 0;        // time that steps had left when not even the least chunk fitted
  int32_t steps_without_prompt_ = 0;
  std::vector<SampleRequest> samples_;  // [max_logit_rows]
  // [max_logit_rows][words] masks of rows with guesses before them; memory that is never touched without.
  std::unique_ptr<uint32_t[]> row_masks_;
  std::vector<int32_t> found_pages_;  // [max_pages]
  std::vector<float> logits_;         // rows for Request::on_logits
  StepLog log_;
  SchedulerClock::time_point made_ = SchedulerClock::now();

  struct {
    Gauge<int64_t> steps, prompt_tokens, reused_tokens, generated_tokens, finished_requests, preemptions;
    Gauge<int64_t> drafts, drafted_tokens, accepted_tokens, evictions;
    Gauge<int32_t> running, waiting, pages_used, pages_cached;
    Gauge<double> cost_error;
  } stats_;
};

}  // namespace inferno
