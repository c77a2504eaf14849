#include "serve/completion.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "comm/rank_failure.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The first 16 digits of a request's id.
uint64_t tag_of(const std::string& id) {
  return std::strtoull(id.substr(0, 16).c_str(), nullptr, 16);
}

}  // namespace

CompletionJob::CompletionJob(CompletionContext& context, const HttpHead& head, Dialect dialect, uint64_t seed,
                             std::weak_ptr<Responder> responder, OnEnd on_end)
    : context_(context),
      dialect_(dialect),
      seed_(seed),
      key_(head.key),
      tag_(tag_of(head.id)),
      responder_(std::move(responder)),
      on_end_(std::move(on_end)),
      form_(error_form(head.path)),
      head_({.request = &request_, .id = head.id, .created = unix_now()}) {}

void CompletionJob::start(std::string body) {
  ++context_.metrics.open;
  auto waiting = std::make_shared<const WaitingBody>(std::move(body), context_.waiting_bytes);
  context_.on_worker([self = shared_from_this(), waiting = std::move(waiting)] { self->prepare(waiting); });
}

void CompletionJob::cancel_tickets() noexcept {
  cancelled_.store(true, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  for (const auto& ticket : tickets_) ticket->cancel();
}

void CompletionJob::wait() const {
  std::vector<std::shared_ptr<Ticket>> tickets;
  {
    const std::scoped_lock lock(mutex_);
    tickets = tickets_;
  }
  for (const auto& ticket : tickets) ticket->wait();
}

CompletionJob::State CompletionJob::state() const {
  const std::scoped_lock lock(mutex_);
  return {.id = head_.id,
          .prompt_tokens = begun_ ? head_.prompt_tokens : 0,
          .generated_tokens = generated_,
          .stream = begun_ && request_.stream};
}

// ---- the loop

void CompletionJob::begin() {
  begun_ = true;
  if (request_.prompts.empty()) {
    context_.on_worker([self = shared_from_this()] { self->build_answer(); });
    return;
  }
  const auto responder = responder_.lock();
  if (request_.stream && responder != nullptr && !expired_) {
    if (!std::exchange(in_stream_, true)) responder->begin(writer_->stream_type());
    responder->write(writer_->opening());
    for (size_t i = 0; i < echoes_.size() * static_cast<size_t>(request_.settings.samples); ++i) {
      responder->write(writer_->token(
          {.choice = static_cast<int32_t>(i), .text = echoes_[i / static_cast<size_t>(request_.settings.samples)]}));
    }
  }
  deliver();
}

void CompletionJob::deliver() {
  if (!begun_ || ended_ || closed_) return;
  try {
    pass_on();
  } catch (...) {
    // There may be no memory left for its answer: it ends like one whose time is over.
    expired_ = true;
    cancel_tickets();
    if (ended_) close();
    tell(current_error());
  }
}

void CompletionJob::pass_on() {
  std::vector<Delta> deltas;
  {
    const std::scoped_lock lock(mutex_);
    notified_ = false;
    // Once: begin() and a call that was posted before it may both find the end.
    ended_ = unfinished_ == 0;
    if (request_.stream || ended_) deltas.swap(deltas_);
  }
  for (Delta& delta : deltas) take(delta);
  if (ended_) return finish();
  if (const auto responder = responder_.lock()) responder->flush();
}

void CompletionJob::tell_progress(int32_t choice, const PromptUpdate& prompt) {
  const auto responder = responder_.lock();
  if (responder == nullptr) return;
  int32_t& told = told_progress_[choice];
  if (told == 0) {
    PromptUpdate start = prompt;
    start.computed = start.reused;
    start.ms = 0;
    responder->write(writer_->progress(choice, start));
  } else if (prompt.computed <= told) {
    return;  // computed again, after others had needed its memory
  }
  told = prompt.computed;
  responder->write(writer_->progress(choice, prompt));
}

void CompletionJob::take(Delta& delta) {
  if (delta.prompt) return tell_progress(delta.choice, *delta.prompt);
  const auto choice = static_cast<size_t>(delta.choice);
  if (!request_.stream) {
    choices_[choice].tokens.push_back(std::move(delta));
    return;
  }
  if (!readers_.empty()) {
    AnswerPiece piece = readers_[choice].push(delta.text);
    delta.text = std::move(piece.content);
    delta.thinking = std::move(piece.reasoning);
    delta.calls = std::move(piece.calls);
  }
  if (const auto responder = responder_.lock()) responder->write(writer_->token(delta));
}

// Why there is no answer; empty: there is one. A request whose client is there ends as cancelled only with the server.
std::optional<ApiError> CompletionJob::failure() const {
  for (const RequestResult& result : results_) {
    if (result.error) {
      try {
        std::rethrow_exception(result.error);
      } catch (const RankFailure& error) {
        return ApiError(503, error.what());
      } catch (const std::exception& error) {
        return ApiError(500, error.what());
      } catch (...) {
        return ApiError(500, "the engine failed");
      }
    }
    for (const Completion& sample : result.samples) {
      if (sample.reason == StopReason::cancelled) return ApiError(503, "the server is shutting down");
    }
  }
  return std::nullopt;
}

void CompletionJob::finish() {
  if (client_gone_ || expired_) return close();
  if (const std::optional<ApiError> error = failure()) return fail(*error);
  const auto samples = static_cast<size_t>(request_.settings.samples);
  for (size_t i = 0; i < choices_.size(); ++i) take_over(i, results_[i / samples].samples[i % samples]);
  if (request_.stream) return finish_stream();
  context_.on_worker([self = shared_from_this()] { self->build_answer(); });
}

void CompletionJob::take_over(size_t index, Completion& made) {
  Choice& choice = choices_[index];
  choice.reason = made.reason;
  choice.stop = stop_of(made);
  choice.ids = std::move(made.ids);
  choice.text = (request_.echo ? echoes_[index / static_cast<size_t>(request_.settings.samples)] : "") + made.text;
  if (readers_.empty()) return;
  AnswerReader& reader = readers_[index];
  // Of a stream all but what is held back was taken apart.
  if (!request_.stream) (void)reader.push(choice.text);
  AnswerPiece rest = reader.finish();
  const auto responder = responder_.lock();
  if (request_.stream && responder != nullptr) {
    responder->write(writer_->token({.choice = static_cast<int32_t>(index),
                                     .text = std::move(rest.content),
                                     .thinking = std::move(rest.reasoning),
                                     .calls = std::move(rest.calls)}));
  }
  choice.text = reader.message().content;
  choice.thinking = reader.message().reasoning_content;
  choice.calls = reader.message().tool_calls;
}

// All tokens are in ids, the text ends before the stop string.
std::string CompletionJob::stop_of(const Completion& made) const {
  if (made.reason != StopReason::stop_string || head_.tokenizer == nullptr) return {};
  const std::string all = head_.tokenizer->decode(made.ids);
  if (all.size() < made.text.size()) return {};
  const std::string_view rest = std::string_view(all).substr(made.text.size());
  for (const std::string& stop : request_.settings.stop_strings) {
    if (rest.starts_with(stop)) return stop;
  }
  return {};
}

void CompletionJob::finish_stream() {
  if (const auto responder = responder_.lock()) {
    responder->write(writer_->ending(choices_, usage()));
    responder->end(note());
  }
  close();
}

// The client learns nothing more after this: its connection may have the next request by now.
void CompletionJob::tell(const ApiError& error) {
  const auto responder = std::exchange(responder_, {}).lock();
  if (responder == nullptr || client_gone_) return;
  const RequestNote said{.error = error.what()};
  if (in_stream_) {
    // Before begin() the request and its writer are a worker's.
    const CompletionRequest empty{.dialect = dialect_, .prompts = {}, .settings = {}};
    responder->write(begun_ ? writer_->failure(error) : make_writer({.request = &empty})->failure(error));
    responder->end(said);
  } else {
    responder->respond(error_response(error, form_), said);
  }
}

void CompletionJob::fail(const ApiError& error) {
  if (closed_) return;
  tell(error);
  if (error.status() == 429) ++context_.metrics.turned_away;
  close();
}

void CompletionJob::close() {
  if (std::exchange(closed_, true)) return;
  Metrics& metrics = context_.metrics;
  --metrics.open;
  give_places_back();
  if (client_gone_) ++metrics.cancelled;
  {
    const std::scoped_lock lock(mutex_);
    metrics.between_tokens.add(between_tokens_);
    metrics.decode_seconds += std::chrono::duration<double>(newest_token_ - first_token_).count();
    for (const RequestResult& result : results_) {
      if (result.metrics.generated_tokens == 0) continue;
      metrics.first_token.add(result.metrics.time_to_first_token_ms / 1e3);
      metrics.queue.add(result.metrics.queue_ms / 1e3);
      metrics.prompt_seconds += (result.metrics.time_to_first_token_ms - result.metrics.queue_ms) / 1e3;
      for (const Completion& sample : result.samples) {
        metrics.longest =
            std::max(metrics.longest, result.metrics.prompt_tokens + static_cast<int64_t>(sample.ids.size()));
      }
    }
  }
  metrics.whole.add(seconds_since(started_));
  body_ = nullptr;
  lease_.release();
  if (on_end_) std::exchange(on_end_, nullptr)(shared_from_this());
}

Usage CompletionJob::usage() const {
  Usage sum;
  for (const RequestResult& result : results_) {
    const RequestMetrics& metrics = result.metrics;
    sum.prompt_tokens += metrics.prompt_tokens;
    sum.generated_tokens += metrics.generated_tokens;
    sum.cached_tokens += metrics.reused_tokens;
    sum.drafted_tokens += metrics.drafted_tokens;
    sum.accepted_tokens += metrics.accepted_tokens;
    sum.queue_ms = std::max(sum.queue_ms, metrics.queue_ms);
    sum.prefill_ms = std::max(sum.prefill_ms, metrics.time_to_first_token_ms - metrics.queue_ms);
  }
  if (!results_.empty()) sum.reuse_end = results_.front().metrics.reuse_end;
  sum.decode_ms = std::chrono::duration<double, std::milli>(newest_token_ - first_token_).count();
  sum.total_ms = seconds_since(started_) * 1e3;
  return sum;
}

RequestNote CompletionJob::note() const {
  const Usage sum = usage();
  return {.has_tokens = true,
          .model = head_.model,
          .prompt_tokens = sum.prompt_tokens,
          .reused_tokens = sum.cached_tokens,
          .reuse_end = to_string(sum.reuse_end),
          .generated_tokens = sum.generated_tokens,
          .queue_ms = sum.queue_ms,
          .first_token_ms = results_.empty() ? 0 : results_.front().metrics.time_to_first_token_ms,
          .decode_ms = sum.decode_ms};
}

}  // namespace inferno::serve
