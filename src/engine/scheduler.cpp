#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/draft_model.h"
#include "engine/page_saver.h"

namespace inferno {
namespace {

constexpr double kCpuLatencyMs = 100;
constexpr double kPromptStepMs = 500;
constexpr double kDeviceLatencyMs = 25;
// More samples of one prompt than any sequence limit.
constexpr int32_t kMaxSamples = 1024;

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::length:
      return "length";
    case StopReason::end_token:
      return "end_token";
    case StopReason::stop_token:
      return "stop_token";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::context_full:
      return "context_full";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::failed:
      return "failed";
  }
  return "";
}

Sequence::Sequence(ActiveRequest& of, int32_t sample_index, KvCache& cache, int32_t most_tokens)
    : request(of),
      sample(sample_index),
      prompt_length(static_cast<int32_t>(of.request.prompt.size())),
      max_tokens(most_tokens),
      kv(cache) {
  tokens.reserve(static_cast<size_t>(max_tokens));
  tokens = of.request.prompt;
  tokens.reserve(static_cast<size_t>(max_tokens));
}

ActiveRequest::ActiveRequest(Request asked, uint64_t arrival)
    : request(std::move(asked)), order(arrival), root(root_key(request.cache_salt)), submitted(SchedulerClock::now()) {}

Scheduler::Scheduler(const SchedulerParts& parts, const SchedulerOptions& options)
    : backend_(parts.backend),
      decoder_(parts.decoder),
      cache_(parts.cache),
      snapshots_(cache_.slots(), cache_.has_states() ? snapshots(parts.decoder.limits().max_sequences) : 0),
      vocabulary_(parts.vocabulary),
      most_context_(parts.most_context),
      end_tokens_(parts.end_tokens),
      tokenizer_(parts.tokenizer),
      saver_(parts.saver),
      draft_model_(parts.draft_model),
      turn_(parts.turn),
      explain_(parts.explain),
      cost_(parts.cost) {
  const double ms = options.max_token_latency_ms > 0 ? options.max_token_latency_ms
                    : backend_.cpu_numerics()        ? kCpuLatencyMs
                                                     : kDeviceLatencyMs;
  latency_seconds_ = ms / 1e3;
  latency_may_grow_ = options.max_token_latency_ms == 0;
  prompt_step_seconds_ = (options.prompt_step_ms > 0 ? options.prompt_step_ms : kPromptStepMs) / 1e3;
  fixed_draft_price_ = options.draft_price;
  max_positions_ = static_cast<int32_t>(
      std::min<int64_t>(cache_.config().max_positions, int64_t{cache_.config().pages} * KvCache::kPageSize));
  const StepLimits& limits = decoder_.limits();
  running_.reserve(static_cast<size_t>(limits.max_sequences));
  step_.reserve(static_cast<size_t>(limits.max_sequences));
  drafting_.reserve(static_cast<size_t>(limits.max_sequences));
  samples_.resize(static_cast<size_t>(limits.max_logit_rows));
  row_masks_ =
      std::make_unique_for_overwrite<uint32_t[]>(samples_.size() * static_cast<size_t>(bitset_words(vocabulary_)));
  found_pages_.resize(static_cast<size_t>(cache_.max_pages()));
}

Scheduler::~Scheduler() {
  close();
  receive();
  drop_cancelled();
}

// ---- submission

void Scheduler::check(const Request& request) const {
  if (request.prompt.empty()) inferno::fail("the prompt is empty; give at least one token");
  if (request.prompt.size() > static_cast<size_t>(cache_.config().max_positions)) {
    const int32_t context = cache_.config().max_positions;
    const bool longer = request.prompt.size() <= static_cast<size_t>(most_context_);
    inferno::fail(
        "the prompt has {} tokens but the context {} positions; {}", request.prompt.size(), context,
        longer ? fmt::format("shorten it or load the model with `context` {} or less", most_context_) : "shorten it");
  }
  if (request.prompt.size() > static_cast<size_t>(max_positions_)) {
    inferno::fail("the prompt has {} tokens but the cache's memory holds {}; shorten it or give the cache more memory",
                  request.prompt.size(), max_positions_);
  }
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= vocabulary_) {
      inferno::fail("token id {} is not in the vocabulary (0 to {})", id, vocabulary_ - 1);
    }
  }
  if (request.samples < 1 || request.samples > kMaxSamples) {
    fail_usage("{} samples were asked for, must be 1 to {}", request.samples, kMaxSamples);
  }
  if (request.max_new_tokens < -1) fail_usage("max_new_tokens is {}, must be -1 or more", request.max_new_tokens);
  check_sampling(request.sampling);
  if (request.top_logprobs < -1 || request.top_logprobs > kMaxTopLogprobs) {
    fail_usage("{} log-probabilities were asked for, must be at most {}", request.top_logprobs, kMaxTopLogprobs);
  }
  check_logit_bias(request.bias, vocabulary_);
  check_drafts(request, cache_.has_states(), vocabulary_);
  if (tokenizer_ == nullptr && !request.stop_strings.empty()) {
    inferno::fail("stop strings need a tokenizer, and this model or build has none; stop at token ids instead");
  }
  if (request.logits_from && (*request.logits_from < 0 || !request.on_logits)) {
    fail_usage("logits from position {} were asked for without a place for them", *request.logits_from);
  }
}

std::shared_ptr<Ticket> Scheduler::submit(Request request) {
  check(request);
  const auto longest = static_cast<int64_t>(max_positions_) + 1;  // one more is drawn from the last position
  const int64_t wanted =
      request.max_new_tokens < 0 ? longest : static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
  const auto max_tokens = static_cast<int32_t>(std::min(longest, wanted));
  uint64_t arrival = 0;
  {
    const std::scoped_lock lock(mutex_);
    arrival = arrivals_++;
  }
  auto active = std::make_shared<ActiveRequest>(std::move(request), arrival);
  active->open = active->request.samples;
  for (int32_t i = 0; i < active->request.samples; ++i) {
    active->sequences.push_back(std::make_unique<Sequence>(*active, i, cache_, max_tokens));
    active->sequences.back()->logits_next = active->request.logits_from.value_or(0);
    prepare_drafts(*active->sequences.back());
    if (tokenizer_ != nullptr && active->request.text) {
      active->sequences.back()->text.emplace(*tokenizer_, active->request.stop_strings);
    }
  }
  active->mutable_result().samples.resize(active->sequences.size());
  {
    const std::scoped_lock lock(mutex_);
    active->cancels = cancels_.load(std::memory_order_relaxed);
    if (closed_) inferno::fail("this engine was closed and takes no more requests");
    inbox_.push_back(active);
    has_mail_.store(true, std::memory_order_release);
  }
  arrived_.notify_one();
  return active;
}

void Scheduler::receive() {
  if (!has_mail_.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<ActiveRequest>> fresh;
  bool closed = false;
  {
    const std::scoped_lock lock(mutex_);
    fresh.swap(inbox_);
    closed = closed_;
    has_mail_.store(closed, std::memory_order_relaxed);
  }
  for (std::shared_ptr<ActiveRequest>& request : fresh) {
    // Arrival numbers are given out before the lock of the inbox is held again.
    const auto place = std::ranges::upper_bound(requests_, request->order, {}, [](const auto& r) { return r->order; });
    for (const auto& sequence : request->sequences) waiting_.push_back(sequence.get());
    requests_.insert(place, std::move(request));
  }
  if (closed) {
    for (const auto& request : requests_) request->cancel();
  }
}

void Scheduler::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    has_mail_.store(true, std::memory_order_release);
  }
  arrived_.notify_all();
}

bool Scheduler::wait_for_work(std::chrono::milliseconds timeout) {
  if (!requests_.empty()) return true;
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, timeout, [&] { return closed_ || !inbox_.empty(); });
  return !inbox_.empty();
}

std::chrono::milliseconds Scheduler::tidy() {
  constexpr std::chrono::milliseconds kSoon{20};
  constexpr std::chrono::hours kNever{1};
  if (saver_ == nullptr) return kNever;
  const StepTurn::Hold hold(turn_);
  try {
    switch (saver_->save_one()) {
      case PageSaver::Left::some:
        return std::chrono::milliseconds(0);
      case PageSaver::Left::later:
        return kSoon;
      case PageSaver::Left::none:
        break;
    }
  } catch (const std::exception& error) {
    inferno::log(LogLevel::warn, "pages are not kept any more: {}", error.what());
    saver_ = nullptr;
  }
  return kNever;
}

EngineStats Scheduler::stats() const {
  return {.steps = stats_.steps,
          .prompt_tokens = stats_.prompt_tokens,
          .reused_tokens = stats_.reused_tokens,
          .generated_tokens = stats_.generated_tokens,
          .drafts = stats_.drafts,
          .drafted_tokens = stats_.drafted_tokens,
          .accepted_tokens = stats_.accepted_tokens,
          .finished_requests = stats_.finished_requests,
          .preemptions = stats_.preemptions,
          .running = stats_.running,
          .waiting = stats_.waiting,
          .cost_error = stats_.cost_error};
}

PageCounts Scheduler::pages() const {
  return {.total = cache_.config().pages,
          .used = stats_.pages_used,
          .cached = stats_.pages_cached,
          .evictions = stats_.evictions};
}

// ---- the loop

bool Scheduler::step() {
  receive();
  drop_cancelled();
  if (requests_.empty()) return false;
  const StepTurn::Hold hold(turn_);
  step_.clear();
  shape_ = {};
  step_has_masks_ = step_shows_logits_ = step_may_draft_ = any_late_ = false;
  plan_decodes();
  plan_drafts();
  plan_prompts();
  fetch_masks();
  if (!step_.empty()) run_step();
  for (Sequence* s : step_) s->step_tokens = 0;
  remove_done();
  return !requests_.empty() || has_mail_.load(std::memory_order_relaxed);
}

void Scheduler::run(const Ticket& ticket) {
  while (!ticket.is_done()) step();
}

bool Scheduler::is_cancelled(const ActiveRequest& request) const {
  return request.is_cancelled() || request.cancels != cancels_.load(std::memory_order_relaxed);
}

void Scheduler::drop_cancelled() {
  for (const auto& request : requests_) {
    if (!is_cancelled(*request)) continue;
    for (const auto& sequence : request->sequences) finish(*sequence, StopReason::cancelled);
  }
  remove_done();
}

}  // namespace inferno
