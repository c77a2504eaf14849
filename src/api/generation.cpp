#include "api/generation.h"

#include <utility>

#include "base/error.h"

namespace inferno {

Request make_request(std::vector<int32_t> ids, const GenerateOptions& options, TokenCallback on_token,
                     const std::shared_ptr<Generation::State>& state, std::function<void()> on_done) {
  Request request;
  request.prompt = std::move(ids);
  request.samples = options.samples;
  request.sampling = options.sampling;
  request.max_new_tokens = options.max_new_tokens;
  request.stop_at_end = options.stop_at_end;
  request.stop_ids = options.stop_ids;
  request.stop_strings = options.stop;
  request.bias = options.logit_bias;
  request.top_logprobs = options.top_logprobs;
  request.allowed = options.allowed;
  request.reuse_prefix = options.reuse_prefix;
  request.cache_salt = options.cache_salt;
  request.recompute = options.recompute;
  request.lookup = options.lookup;
  request.prediction = options.prediction;
  request.draft = options.draft;
  request.max_draft = options.max_draft;
  const bool collects = options.top_logprobs >= 0;
  if (collects && options.samples > 0) state->logprobs.resize(static_cast<size_t>(options.samples));
  if (collects || state->buffered) {
    request.on_token = [state, collects, on_token = std::move(on_token)](const TokenEvent& token) {
      if (collects && token.id >= 0) {
        state->logprobs[static_cast<size_t>(token.sample)].emplace_back(token.logprobs.begin(), token.logprobs.end());
      }
      if (state->buffered && token.sample == 0 && !token.text.empty()) {
        const std::scoped_lock lock(state->mutex);
        state->text += token.text;
        state->changed.notify_one();
      }
      return !on_token || on_token(token);
    };
  } else {
    request.on_token = std::move(on_token);
  }
  if (state->buffered || on_done) {
    request.on_finish = [state, on_done = std::move(on_done)](const RequestResult&) {
      {
        const std::scoped_lock lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
      }
      if (on_done) on_done();
    };
  }
  return request;
}

GenerateResult Generation::State::finished(RequestResult result) const {
  if (result.error) std::rethrow_exception(result.error);
  for (size_t i = 0; i < logprobs.size(); ++i) result.samples[i].logprobs = logprobs[i];
  return static_cast<GenerateResult&&>(result);
}

void Generation::State::prepare_to_wait() const {
  role->check_can_wait();
  if (is_enqueued) role->start_thread();
}

Generation::Generation(std::shared_ptr<State> state) : state_(std::move(state)) {}

void Generation::cancel() const noexcept {
  if (state_) state_->ticket->cancel();
}

bool Generation::is_done() const noexcept {
  return state_ && (state_->ended.load(std::memory_order_acquire) || state_->ticket->is_done());
}

void Generation::wait() const {
  if (!state_) fail_usage("this Generation was moved from and stands for no request");
  if (state_->ticket->is_done()) return;
  state_->prepare_to_wait();
  state_->ticket->wait();
}

std::optional<std::string> Generation::next() const {
  if (!state_) fail_usage("this Generation was moved from and stands for no request");
  if (!state_->buffered)
    fail_usage("this request has a callback, which is given its text; next() is for those without");
  std::unique_lock lock(state_->mutex);
  if (state_->text.empty() && !state_->ended) {
    state_->prepare_to_wait();
    state_->changed.wait(lock, [&] { return !state_->text.empty() || state_->ended; });
  }
  if (state_->text.empty()) return std::nullopt;
  // A copy: the buffer keeps its memory.
  std::string fresh = state_->text;
  state_->text.clear();
  return fresh;
}

GenerateResult Generation::result() const {
  wait();
  return state_->finished(state_->ticket->result());
}

}  // namespace inferno
