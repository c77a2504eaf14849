#include "serve/completion.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "api/prompt_ids.h"
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
      head_({.request = &request_,
             .tokenizer = context.engine.tokenizer(),
             .id = head.id,
             .created = unix_now(),
             .model = context.limits.model}) {}

void CompletionJob::start(std::string body) {
  ++context_.metrics.open;
  context_.on_worker([self = shared_from_this(), text = std::move(body)] { self->prepare(text); });
}

void CompletionJob::cancel() noexcept {
  client_gone_ = true;
  cancel_tickets();
}

void CompletionJob::expire() {
  expired_ = true;
  cancel_tickets();
  tell({504, "the time that X-Request-Timeout allows is over", {}, "request_timeout"});
}

void CompletionJob::abort() noexcept {
  cancel_tickets();
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

// ---- a worker

void CompletionJob::prepare(const std::string& body) noexcept {
  try {
    admit(body);
    context_.on_loop([self = shared_from_this()] { self->begin(); });
  } catch (...) {
    const ApiError error = current_error();
    cancel_tickets();
    wait();
    post_failure(error);
  }
}

void CompletionJob::admit(const std::string& body) {
  if (cancelled_.load(std::memory_order_relaxed)) throw ApiError(503, "the server is shutting down");
  request_ = parse_completion(body, dialect_, context_.limits, seed_);
  const Tokenizer* tokenizer = context_.engine.tokenizer();
  std::vector<std::vector<int32_t>> prompts;
  for (const Prompt& prompt : request_.prompts) {
    prompts.push_back(prompt_ids(tokenizer, prompt));
    const std::vector<int32_t>& ids = prompts.back();
    if (ids.empty()) fail_field("prompt", "is empty; give at least one token");
    if (ids.size() > static_cast<size_t>(context_.limits.context)) {
      throw ApiError(
          400,
          fmt::format("the prompt has {} tokens but the context {} positions", ids.size(), context_.limits.context),
          is_chat(dialect_) ? "messages" : "prompt", "context_length_exceeded");
    }
    context_.engine.check_tokens(ids);
    head_.prompt_tokens += static_cast<int64_t>(ids.size());
    if (!request_.echo) continue;
    const auto* text = std::get_if<std::string>(&prompt.content);
    echoes_.push_back(text != nullptr ? *text : tokenizer != nullptr ? tokenizer->decode(ids) : "");
  }
  writer_ = make_writer(head_);
  if (request_.split_thinking) split_thinking(prompts);

  if (!take_places()) throw ApiError(429, "too many requests wait here; try again later", {}, "queue_full");
  const auto choices = static_cast<size_t>(request_.choices());
  choices_.resize(choices);
  {
    const std::scoped_lock lock(mutex_);
    last_token_.resize(choices);
    results_.resize(prompts.size());
    unfinished_ = prompts.size();
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (context_.closed) throw ApiError(503, "the server is shutting down");
    auto ticket = context_.engine.driver().submit(engine_request(i, std::move(prompts[i])));
    const std::scoped_lock lock(mutex_);
    if (cancelled_.load(std::memory_order_relaxed)) ticket->cancel();
    tickets_.push_back(std::move(ticket));
  }
}

// Counted before they are compared: two that take the last place at once both see that.
bool CompletionJob::take_places() {
  admitted_ = request_.choices();
  bool fits = context_.sequences.fetch_add(admitted_) + admitted_ <= context_.max_sequences;
  if (key_ < context_.keys.size()) {
    const int64_t now = context_.keys[key_].sequences.fetch_add(admitted_) + admitted_;
    fits = fits && (context_.max_sequences_per_key == 0 || now <= context_.max_sequences_per_key);
  }
  return fits;
}

void CompletionJob::give_places_back() noexcept {
  context_.sequences -= admitted_;
  if (key_ < context_.keys.size()) context_.keys[key_].sequences -= admitted_;
}

void CompletionJob::split_thinking(std::span<const std::vector<int32_t>> prompts) {
  constexpr size_t kTail = 8;  // tokens: longer than any way to write the tag
  for (const std::vector<int32_t>& ids : prompts) {
    const auto tail = std::span(ids).last(std::min(ids.size(), kTail));
    const bool is_open = head_.tokenizer != nullptr && ends_in_thinking(head_.tokenizer->decode(tail));
    for (int32_t i = 0; i < request_.settings.samples; ++i) splitters_.emplace_back(is_open);
  }
}

Request CompletionJob::engine_request(size_t prompt, std::vector<int32_t> ids) {
  Request request = request_.settings;
  request.prompt = std::move(ids);
  request.tag = tag_;
  // Who has another key does not learn from the time an answer takes what was asked before.
  if (key_ < context_.keys.size()) request.cache_salt = fmt::format("key {}", key_);
  const auto first = static_cast<int32_t>(prompt) * request.samples;
  request.on_token = [self = shared_from_this(), first](const TokenEvent& token) {
    self->add_token(first + token.sample, token);
    return true;
  };
  request.on_finish = [self = shared_from_this(), prompt](const RequestResult& result) {
    self->add_result(prompt, result);
  };
  return request;
}

void CompletionJob::build_answer() noexcept {
  try {
    const Usage sum = usage();
    HttpResponse response{.body = writer_->whole(choices_, sum) + "\n"};
    response.headers.emplace_back("Server-Timing",
                                  fmt::format("queue;dur={:.1f}, prefill;dur={:.1f}, decode;dur={:.1f}", sum.queue_ms,
                                              sum.prefill_ms, sum.decode_ms));
    response.headers.emplace_back("X-Reused-Tokens",
                                  fmt::format("{}; {}", sum.cached_tokens, to_string(sum.reuse_end)));
    context_.on_loop([self = shared_from_this(), answer = std::move(response)] {
      if (const auto responder = self->responder_.lock()) responder->respond(answer, self->note());
      self->close();
    });
  } catch (...) {
    post_failure(current_error());
  }
}

// The loop gets an error of its own: copies of an exception share their message.
void CompletionJob::post_failure(const ApiError& error) {
  context_.on_loop([self = shared_from_this(), status = error.status(), message = std::string(error.what()),
                    param = error.param(), code = error.code()] { self->fail({status, message, param, code}); });
}

// ---- the engine's thread

void CompletionJob::notify() {
  if (std::exchange(notified_, true)) return;
  context_.on_loop([self = shared_from_this()] { self->deliver(); });
}

void CompletionJob::add_token(int32_t choice, const TokenEvent& token) {
  const std::scoped_lock lock(mutex_);
  if (token.id >= 0) {
    auto& last = last_token_[static_cast<size_t>(choice)];
    const auto now = std::chrono::steady_clock::now();
    if (last.time_since_epoch().count() != 0) between_tokens_.add(std::chrono::duration<double>(now - last).count());
    last = now;
    if (generated_++ == 0) first_token_ = now;
    newest_token_ = now;
  }
  if (!request_.stream && !request_.logprobs()) return;
  deltas_.push_back({.choice = choice,
                     .id = token.id,
                     .text = std::string(token.text),
                     .logprobs = {token.logprobs.begin(), token.logprobs.end()}});
  if (request_.stream) notify();
}

void CompletionJob::add_result(size_t prompt, const RequestResult& result) {
  const std::scoped_lock lock(mutex_);
  results_[prompt] = result;
  --unfinished_;
  if (unfinished_ == 0) notify();
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
    responder->begin(writer_->stream_type());
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
  std::vector<Delta> deltas;
  bool ended = false;
  {
    const std::scoped_lock lock(mutex_);
    notified_ = false;
    ended = unfinished_ == 0;
    if (request_.stream || ended) deltas.swap(deltas_);
  }
  for (Delta& delta : deltas) take(delta);
  // Once: begin() and a call that was posted before it may both find the end.
  ended_ = ended;
  if (ended) finish();
}

void CompletionJob::take(Delta& delta) {
  const auto choice = static_cast<size_t>(delta.choice);
  if (!request_.stream) {
    choices_[choice].tokens.push_back(std::move(delta));
    return;
  }
  if (!splitters_.empty()) {
    ThinkingSplitter::Parts parts = splitters_[choice].push(delta.text);
    delta.text = std::move(parts.content);
    delta.thinking = std::move(parts.thinking);
  }
  if (const auto responder = responder_.lock()) responder->write(writer_->token(delta));
}

// Why there is no answer; empty: there is one. A request whose client is there ends as cancelled only with the server.
std::optional<ApiError> CompletionJob::failure() const {
  for (const RequestResult& result : results_) {
    if (result.error) {
      try {
        std::rethrow_exception(result.error);
      } catch (const std::exception& error) {
        return ApiError(500, error.what());
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
  for (size_t i = 0; i < choices_.size(); ++i) {
    Completion& made = results_[i / samples].samples[i % samples];
    Choice& choice = choices_[i];
    choice.reason = made.reason;
    choice.stop = stop_of(made);
    choice.ids = std::move(made.ids);
    choice.text = (request_.echo ? echoes_[i / samples] : "") + made.text;
    if (splitters_.empty()) continue;
    // Of a stream all but what is held back was taken apart; the last events may need all of it.
    Delta rest{.choice = static_cast<int32_t>(i)};
    ThinkingSplitter::Parts parts;
    if (request_.stream) {
      parts = splitters_[i].finish();
      rest.text = std::move(parts.content);
      rest.thinking = std::move(parts.thinking);
      if (const auto responder = responder_.lock()) responder->write(writer_->token(rest));
      splitters_[i] = ThinkingSplitter(splitters_[i].was_open());
    }
    parts = splitters_[i].push(choice.text);
    const ThinkingSplitter::Parts held = splitters_[i].finish();
    choice.text = parts.content + held.content;
    choice.thinking = parts.thinking + held.thinking;
  }
  if (request_.stream) return finish_stream();
  context_.on_worker([self = shared_from_this()] { self->build_answer(); });
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
  if (begun_ && request_.stream && !request_.prompts.empty()) {
    responder->write(writer_->failure(error));
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
    for (const RequestResult& result : results_) {
      if (result.metrics.generated_tokens == 0) continue;
      metrics.first_token.add(result.metrics.time_to_first_token_ms / 1e3);
      metrics.queue.add(result.metrics.queue_ms / 1e3);
    }
  }
  metrics.whole.add(seconds_since(started_));
  if (on_end_) std::exchange(on_end_, nullptr)(shared_from_this());
}

Usage CompletionJob::usage() const {
  Usage sum;
  for (const RequestResult& result : results_) {
    const RequestMetrics& metrics = result.metrics;
    sum.prompt_tokens += metrics.prompt_tokens;
    sum.generated_tokens += metrics.generated_tokens;
    sum.cached_tokens += metrics.reused_tokens;
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
          .prompt_tokens = sum.prompt_tokens,
          .reused_tokens = sum.cached_tokens,
          .reuse_end = to_string(sum.reuse_end),
          .generated_tokens = sum.generated_tokens,
          .queue_ms = sum.queue_ms,
          .first_token_ms = results_.empty() ? 0 : results_.front().metrics.time_to_first_token_ms,
          .decode_ms = sum.decode_ms};
}

}  // namespace inferno::serve
