// A step that has been planned: running it, what comes out of it for each sequence, and the ends of requests.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "engine/scheduler.h"

namespace inferno {
namespace {

double milliseconds(SchedulerClock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

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
