#include "serve/completion.h"

#include <exception>
#include <new>
#include <utility>

#include "api/prompt_ids.h"

namespace inferno::serve {
namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What is being handled, as an error of the request.
ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return {400, error.what()};
  } catch (const std::bad_alloc&) {
    return {503, "the server has no memory for this request"};
  } catch (const std::exception& error) {
    return {500, error.what()};
  }
}

}  // namespace

CompletionJob::CompletionJob(CompletionContext& context, const HttpHead& head, bool chat, uint64_t seed,
                             std::weak_ptr<Responder> responder, OnEnd on_end)
    : context_(context),
      chat_(chat),
      seed_(seed),
      responder_(std::move(responder)),
      on_end_(std::move(on_end)),
      writer_({}, nullptr),
      head_({.chat = chat,
             .id = (chat ? "chatcmpl-" : "cmpl-") + head.id,
             .created = unix_seconds(),
             .model = context.limits.model}) {}

void CompletionJob::start(std::string body) {
  ++context_.metrics.open;
  context_.on_worker([self = shared_from_this(), text = std::move(body)] { self->prepare(text); });
}

void CompletionJob::cancel() noexcept {
  client_gone_ = true;
  cancel_tickets();
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
  request_ = parse_completion(body, chat_, context_.limits, seed_);
  head_.include_usage = request_.include_usage;
  head_.logprobs = request_.settings.top_logprobs >= 0;
  const Tokenizer* tokenizer = context_.engine.tokenizer();
  writer_ = ReplyWriter(head_, tokenizer);

  std::vector<std::vector<int32_t>> prompts;
  for (const Prompt& prompt : request_.prompts) {
    prompts.push_back(prompt_ids(tokenizer, prompt));
    const std::vector<int32_t>& ids = prompts.back();
    if (ids.empty()) fail_field("prompt", "is empty; give at least one token");
    if (ids.size() > static_cast<size_t>(context_.limits.context)) {
      throw ApiError(
          400,
          fmt::format("the prompt has {} tokens but the context {} positions", ids.size(), context_.limits.context),
          chat_ ? "messages" : "prompt", "context_length_exceeded");
    }
    context_.engine.check_tokens(ids);
    if (!request_.echo) continue;
    const auto* text = std::get_if<std::string>(&prompt.content);
    echoes_.push_back(text != nullptr ? *text : tokenizer != nullptr ? tokenizer->decode(ids) : "");
  }

  admitted_ = request_.choices();
  if (context_.sequences.fetch_add(admitted_) + admitted_ > context_.max_sequences) {
    throw ApiError(429, "too many requests wait here; try again later", {}, "queue_full");
  }
  const auto choices = static_cast<size_t>(request_.choices());
  text_offsets_.resize(choices);
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

Request CompletionJob::engine_request(size_t prompt, std::vector<int32_t> ids) {
  Request request = request_.settings;
  request.prompt = std::move(ids);
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
    HttpResponse response{.body = writer_.whole(choices_, usage()) + "\n"};
    context_.on_loop([self = shared_from_this(), answer = std::move(response)] {
      const std::string note = self->note();
      if (const auto responder = self->responder_.lock()) responder->respond(answer, note);
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
  }
  if (!request_.stream && !head_.logprobs) return;
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
  if (request_.stream) {
    if (const auto responder = responder_.lock()) {
      responder->begin();
      for (int32_t i = 0; chat_ && i < request_.choices(); ++i) responder->write(writer_.opening(i));
    }
    for (size_t i = 0; i < echoes_.size() * static_cast<size_t>(request_.settings.samples); ++i) {
      write({.choice = static_cast<int32_t>(i), .text = echoes_[i / static_cast<size_t>(request_.settings.samples)]});
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
  for (Delta& delta : deltas) {
    if (request_.stream) {
      write(delta);
    } else {
      choices_[static_cast<size_t>(delta.choice)].tokens.push_back(std::move(delta));
    }
  }
  // Once: begin() and a call that was posted before it may both find the end.
  ended_ = ended;
  if (ended) finish();
}

void CompletionJob::write(const Delta& delta) {
  const bool has_logprobs = head_.logprobs && !delta.logprobs.empty();
  if (delta.text.empty() && !has_logprobs) return;
  const auto responder = responder_.lock();
  if (responder == nullptr) return;
  size_t& offset = text_offsets_[static_cast<size_t>(delta.choice)];
  responder->write(writer_.token(delta, offset));
  offset += characters(delta.text);
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
  if (client_gone_) return close();
  if (const std::optional<ApiError> error = failure()) return fail(*error);
  const auto samples = static_cast<size_t>(request_.settings.samples);
  for (size_t i = 0; i < choices_.size(); ++i) {
    Completion& made = results_[i / samples].samples[i % samples];
    if (request_.echo) choices_[i].text = echoes_[i / samples];
    choices_[i].text += made.text;
    choices_[i].reason = made.reason;
  }
  if (request_.stream) return finish_stream();
  context_.on_worker([self = shared_from_this()] { self->build_answer(); });
}

void CompletionJob::finish_stream() {
  const std::string line = note();
  if (const auto responder = responder_.lock()) {
    for (size_t i = 0; i < choices_.size(); ++i) {
      responder->write(writer_.ending(static_cast<int32_t>(i), choices_[i].reason));
    }
    if (request_.include_usage) responder->write(writer_.usage(usage()));
    responder->write(ReplyWriter::done());
    responder->end(line);
  }
  close();
}

void CompletionJob::fail(const ApiError& error) {
  if (closed_) return;
  const auto responder = responder_.lock();
  if (responder != nullptr && !client_gone_) {
    const std::string line = fmt::format("error={}", error.status());
    if (begun_ && request_.stream) {
      responder->write(event(error_body(error)));
      responder->end(line);
    } else {
      responder->respond(error_response(error), line);
    }
  }
  if (error.status() == 429) ++context_.metrics.turned_away;
  close();
}

void CompletionJob::close() {
  if (std::exchange(closed_, true)) return;
  Metrics& metrics = context_.metrics;
  --metrics.open;
  context_.sequences -= admitted_;
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
    sum.prompt_tokens += result.metrics.prompt_tokens;
    sum.generated_tokens += result.metrics.generated_tokens;
    sum.cached_tokens += result.metrics.reused_tokens;
  }
  return sum;
}

std::string CompletionJob::note() const {
  const Usage sum = usage();
  return fmt::format("prompt={} cached={} new={} first_ms={:.1f}", sum.prompt_tokens, sum.cached_tokens,
                     sum.generated_tokens, results_.empty() ? 0 : results_.front().metrics.time_to_first_token_ms);
}

}  // namespace inferno::serve
