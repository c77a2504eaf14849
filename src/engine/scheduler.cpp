#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/draft_model.h"
#include "engine/page_saver.h"

namespace inferno {
namespace {

double milliseconds(SchedulerClock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

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

void Scheduler::run_step() {
  bool any_draw = false;
  for (const Sequence* s : step_) any_draw = any_draw || s->draws;
  const SchedulerClock::time_point begin = SchedulerClock::now();
  try {
    decoder_.clear();
    size_t rows = 0;
    for (Sequence* s : step_) add_to_batch(*s, rows);
    decoder_.run(any_draw ? std::span<const SampleRequest>(samples_).first(rows) : std::span<const SampleRequest>(),
                 step_shows_logits_);
    if (!any_draw) backend_.synchronize();
    remove_guesses();
  } catch (...) {
    // Nobody knows how far the step came: all in it fail, and nothing of it is found in the cache later.
    const std::exception_ptr error = std::current_exception();
    remove_guesses();
    for (Sequence* s : step_) fail(s->request, error);
    return;
  }
  const SchedulerClock::time_point end = SchedulerClock::now();
  const double seconds = std::chrono::duration<double>(end - begin).count();
  log_step(seconds);
  cost_.observe(shape_, seconds);
  if (static_cast<size_t>(shape_.tokens) == step_.size()) decode_only_.observe(shape_.tokens, seconds);
  stats_.steps += 1;
  stats_.cost_error = cost_.error();
  deliver_logits();
  int32_t row = 0;
  for (Sequence* s : step_) {
    row += s->step_rows;
    if (s->done) continue;  // another sample of its request failed
    s->computed += s->step_tokens;
    if (s->step_tokens > 1 || s->generated() == 0) stats_.prompt_tokens += s->step_tokens;
    list_pages(*s);
    report_prompt(*s);
    if (s->done) continue;  // whoever was told failed
    if (s->draws) {
      take_tokens(*s, row - 1 - s->draft_count, end);
    } else if (s->remaining() == 0) {
      finish(*s, StopReason::length);
    }
  }
}

// The sequence's tokens of the step and its guesses, and how its rows are sampled: each as if all guesses before it
// were tokens.
void Scheduler::add_to_batch(Sequence& s, size_t& row) {
  const auto length = static_cast<size_t>(s.step_length);
  // There is room: guesses are fewer than the tokens that are left to make.
  for (int32_t i = 0; i < s.draft_count; ++i) s.tokens.push_back(s.draft[static_cast<size_t>(i)]);
  const std::span<const int32_t> tokens = s.tokens;
  decoder_.add(s.kv, s.computed,
               tokens.subspan(static_cast<size_t>(s.computed),
                              static_cast<size_t>(s.step_tokens) + static_cast<size_t>(s.draft_count)),
               s.step_rows);
  for (int32_t i = 0; i < s.step_rows; ++i) samples_[row++] = {};  // rows that are only looked at
  if (!s.draws) return;
  const Request& request = s.request.request;
  for (int32_t i = 0; i <= s.draft_count; ++i) {
    const size_t position = length + static_cast<size_t>(i);
    samples_[row - 1 - static_cast<size_t>(s.draft_count - i)] = {.settings = request.sampling,
                                                                  .sample_index = s.sample,
                                                                  .position = static_cast<int32_t>(position),
                                                                  .history = tokens.first(position),
                                                                  .allowed = s.allowed[static_cast<size_t>(i)],
                                                                  .bias = request.bias,
                                                                  .top_logprobs = request.top_logprobs};
  }
}

// Guesses are among the tokens while a step runs, and never afterwards.
void Scheduler::remove_guesses() {
  for (Sequence* s : step_) s->tokens.resize(static_cast<size_t>(s->step_length));
}

// What was drawn from the sequence's rows, up to and with the first token that was not guessed.
void Scheduler::take_tokens(Sequence& s, int32_t first_row, SchedulerClock::time_point end) {
  const double ms = milliseconds(end - s.forward_begin);
  s.forward_begin = s.last_token = end;
  RequestMetrics& m = s.request.mutable_result().metrics;
  if (s.sample == 0) {
    m.forward_min_ms = s.forwards == 0 ? ms : std::min(m.forward_min_ms, ms);
    m.forward_max_ms = std::max(m.forward_max_ms, ms);
  }
  if (s.forwards++ == 0) {
    s.first_token = end;
    if (s.sample == 0) m.time_to_first_token_ms = milliseconds(end - s.request.submitted);
  }
  s.forward_total_ms += ms;
  s.request.prompt_done = true;
  int32_t right = 0;
  for (int32_t row = first_row;; ++row) {
    const int32_t token = decoder_.sampled()[static_cast<size_t>(row)];
    ++s.drawn;
    accept(s, token, decoder_.logprobs(row));
    if (right == s.draft_count || token != s.draft[static_cast<size_t>(right)]) break;
    ++right;
    if (s.done || is_cancelled(s.request)) break;  // and what follows is as if it had never been computed
    ++s.computed;
    list_pages(s);
  }
  if (s.speculates) count_drafts(s, right);
}

void Scheduler::log_step(double seconds) {
  StepRecord record;
  record.number = stats_.steps;
  record.end_seconds = std::chrono::duration<double>(SchedulerClock::now() - made_).count();
  record.seconds = seconds;
  record.expected_seconds = cost_.seconds(shape_);
  record.waiting = static_cast<int32_t>(waiting_.size());
  for (const Sequence* s : step_) {
    const bool decodes = s->step_tokens == 1 && s->computed >= s->prompt_length;
    (decodes ? record.decodes : record.prompt_tokens) += s->step_tokens + s->draft_count;
    if (record.members == static_cast<int32_t>(record.member.size())) continue;
    record.member[static_cast<size_t>(record.members++)] = {.tag = s->request.request.tag,
                                                            .tokens = s->step_tokens + s->draft_count,
                                                            .position = s->computed,
                                                            .left = s->remaining()};
  }
  record.sequences = static_cast<int32_t>(step_.size());
  record.target_seconds = target_seconds_;
  log_.add(record);
}

void Scheduler::report_prompt(Sequence& s) {
  const Request& request = s.request.request;
  if (!request.on_prompt || s.sample > 0 || s.computed > s.prompt_length) return;
  try {
    request.on_prompt(
        {.total = s.prompt_length, .reused = s.request.mutable_result().metrics.reused_tokens, .computed = s.computed});
  } catch (...) {
    fail(s.request, std::current_exception());
  }
}

// The rows of prompts that want to see them.
void Scheduler::deliver_logits() {
  if (!step_shows_logits_) return;
  const auto wants = [](const Sequence* s) { return s->request.request.logits_from.has_value() && s->step_rows > 0; };
  const auto width = static_cast<size_t>(vocabulary_);
  logits_.resize(static_cast<size_t>(decoder_.logit_rows()) * width);
  decoder_.download_logits(logits_);
  size_t row = 0;
  for (Sequence* s : step_) {
    const auto rows = static_cast<size_t>(s->step_rows);
    const size_t first_row = std::exchange(row, row + rows);
    const int32_t end = s->computed + s->step_tokens;
    if (!wants(s) || s->done || s->sample > 0 || end <= s->logits_next || end > s->prompt_length) continue;
    s->logits_next = end;
    try {
      s->request.request.on_logits(end - s->step_rows, std::span(logits_).subspan(first_row * width, rows * width));
    } catch (...) {
      fail(s->request, std::current_exception());
    }
  }
}

// ---- a token, and the end

void Scheduler::accept(Sequence& s, int32_t token, std::span<const TokenLogprob> logprobs) {
  const Request& request = s.request.request;
  if (token < 0) {
    return fail(s.request, std::make_exception_ptr(Error(
                               token == kNotFinite
                                   ? explain_(s.kv, s.tokens)
                                   : "no token may be drawn: the mask or bias allows none that has a probability")));
  }
  if (request.stop_at_end && std::ranges::find(end_tokens_, token) != end_tokens_.end()) {
    return finish(s, StopReason::end_token);
  }
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) return finish(s, StopReason::stop_token);
  s.tokens.push_back(token);
  stats_.generated_tokens += 1;
  if (request.recompute) s.computed = 0;
  bool stop_string = false;
  std::string_view text;
  if (s.text) {
    stop_string = !s.text->push(token);
    text = s.text->fresh();
  }
  if (!emit(s, token, text, logprobs)) return;
  if (stop_string) return finish(s, StopReason::stop_string);
  if (request.max_new_tokens >= 0 && s.generated() >= request.max_new_tokens) return finish(s, StopReason::length);
  if (s.length() > max_positions_) return finish(s, StopReason::context_full);
}

// False when the sample ended in its callback.
bool Scheduler::emit(Sequence& s, int32_t id, std::string_view text, std::span<const TokenLogprob> logprobs) {
  const Request& request = s.request.request;
  if (!request.on_token) return true;
  try {
    if (request.on_token({.sample = s.sample, .id = id, .text = text, .logprobs = logprobs})) return true;
    s.muted = true;
    finish(s, StopReason::cancelled);
  } catch (...) {
    fail(s.request, std::current_exception());
  }
  return false;
}

void Scheduler::finish(Sequence& s, StopReason reason) {
  if (s.done) return;
  s.done = true;
  s.reason = reason;
  leave(s);
  Completion& completion = s.request.mutable_result().samples[static_cast<size_t>(s.sample)];
  if (s.text && !s.muted && reason != StopReason::stop_string && reason != StopReason::failed) {
    s.text->finish();
    if (!s.text->fresh().empty()) emit(s, -1, s.text->fresh(), {});
  }
  if (s.text) completion.text = s.text->text();
  completion.ids.assign(s.generated_tokens().begin(), s.generated_tokens().end());
  completion.reason = s.reason;
  if (--s.request.open == 0) ++done_requests_;
}

void Scheduler::fail(ActiveRequest& request, const std::exception_ptr& error) {
  RequestResult& result = request.mutable_result();
  if (!result.error) result.error = error;
  for (const auto& sequence : request.sequences) finish(*sequence, StopReason::failed);
}

void Scheduler::complete(ActiveRequest& request) {
  RequestMetrics& m = request.mutable_result().metrics;
  m.prompt_tokens = static_cast<int32_t>(request.request.prompt.size());
  for (const auto& s : request.sequences) {
    m.generated_tokens += s->generated();
    m.drafted_tokens += s->drafted;
    m.accepted_tokens += s->accepted;
  }
  const Sequence& first = *request.sequences.front();
  m.forwards = first.forwards;
  if (const double prompt_ms = m.time_to_first_token_ms - m.queue_ms; prompt_ms > 0) {
    m.prompt_tokens_per_second = (m.prompt_tokens - m.reused_tokens) / prompt_ms * 1e3;
  }
  if (first.forwards > 0) m.forward_mean_ms = first.forward_total_ms / first.forwards;
  const double decode_ms = milliseconds(first.last_token - first.first_token);
  // The first forward made one token: guesses need one to follow.
  if (first.drawn > 1 && decode_ms > 0) m.decode_tokens_per_second = (first.drawn - 1) / decode_ms * 1e3;
  stats_.finished_requests += 1;
  if (request.request.on_finish) {
    try {
      request.request.on_finish(request.result());
    } catch (...) {
      // The request is over; there is nobody left to tell.
      request.mutable_result().error = std::current_exception();
    }
  }
  request.publish();
}

void Scheduler::remove_done() {
  stats_.running = static_cast<int32_t>(running_.size());
  stats_.waiting = static_cast<int32_t>(waiting_.size());
  const PagePool& pool = cache_.pool();
  stats_.pages_used = pool.pages() - pool.available();
  stats_.pages_cached = pool.cached();
  stats_.evictions = pool.evictions();
  if (done_requests_ == 0) return;
  for (const auto& request : requests_) {
    if (request->open == 0) complete(*request);
  }
  std::erase_if(requests_, [](const auto& r) { return r->open == 0; });
  done_requests_ = 0;
}

}  // namespace inferno
