// What workers and the engine's thread do for a request.
#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/log.h"
#include "serve/chat_prompt.h"
#include "serve/completion.h"
#include "serve/request_fields.h"

namespace inferno::serve {

// ---- a worker

void CompletionJob::prepare(const Body& body) noexcept {
  try {
    const Json parsed = parse_object(body->text());
    if (!lease_) {
      ServedModel& model = context_.models.find(model_of(Fields(parsed)));
      lease_ = context_.models.try_lease(model);
      if (!lease_) {
        context_.on_loop([self = shared_from_this(), &model, body, stream = wants_stream(parsed, dialect_)] {
          self->wait_for_model(model, body, stream);
        });
        return;
      }
    }
    admit(parsed, body->text());
    context_.on_loop([self = shared_from_this()] { self->begin(); });
  } catch (...) {
    const ApiError error = current_error();
    cancel_tickets();
    wait();
    post_failure(error);
  }
}

void CompletionJob::admit(const Json& body, std::string_view text) {
  if (cancelled_.load(std::memory_order_relaxed)) throw ApiError(503, "the server is shutting down");
  Engine& engine = lease_.engine();
  if (!engine.makes_text()) {
    fail_field("model", "\"{}\" makes embeddings, no text; ask one that was made for text", lease_.model().name);
  }
  const int32_t context = lease_.model().limits.context;
  request_ = parse_completion(body, text, dialect_, lease_.model().limits, seed_);
  request_.show_prompt = request_.show_prompt || context_.show_prompts;
  constrain();
  const Tokenizer* tokenizer = engine.tokenizer();
  head_.end_tokens = engine.end_tokens();
  head_.tokenizer = tokenizer;
  head_.model = lease_.model().name;
  std::vector<std::vector<int32_t>> prompts;
  add_text_bias(tokenizer);
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    prompts.push_back(prompt_tokens(tokenizer, request_, i));
    const std::vector<int32_t>& ids = prompts.back();
    if (ids.empty()) fail_field("prompt", "is empty; give at least one token");
    if (ids.size() > static_cast<size_t>(context)) {
      throw ApiError(
          400,
          fmt::format("the prompt has {} tokens, which exceeds the available context size of {}", ids.size(), context),
          is_chat(dialect_) ? "messages" : "prompt", "context_length_exceeded");
    }
    engine.check_tokens(ids);
    head_.prompt_tokens += static_cast<int64_t>(ids.size());
    if (request_.show_prompt && tokenizer != nullptr) head_.prompts.push_back(tokenizer->decode(ids));
    if (!request_.echo) continue;
    const auto* text = std::get_if<std::string>(&request_.prompts[i].content);
    echoes_.push_back(text != nullptr ? *text : tokenizer != nullptr ? tokenizer->decode(ids) : "");
  }
  writer_ = make_writer(head_);
  read_answers(prompts);

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
    auto ticket = engine.driver().submit(engine_request(i, std::move(prompts[i])));
    const std::scoped_lock lock(mutex_);
    if (cancelled_.load(std::memory_order_relaxed)) ticket->cancel();
    tickets_.push_back(std::move(ticket));
  }
}

// Every token of such a text has its bias.
void CompletionJob::add_text_bias(const Tokenizer* tokenizer) {
  if (request_.text_bias.empty()) return;
  if (tokenizer == nullptr) fail_field("logit_bias", "has texts, and this model has no vocabulary; give token ids");
  // The last one given for a token counts.
  std::vector<LogitBias>& bias = request_.settings.bias;
  std::map<int32_t, float> by_token;
  for (const LogitBias& entry : bias) by_token[entry.id] = entry.bias;
  for (const TextBias& entry : request_.text_bias) {
    for (const int32_t id : tokenizer->encode(entry.text, {.parse_special = true, .add_bos = false})) {
      by_token[id] = entry.bias;
    }
  }
  bias.clear();
  for (const auto& [id, value] : by_token) bias.push_back({.id = id, .bias = value});
}

// Compiles what the answer must be, which every prompt's request then shares; here, where nobody waits for a token.
void CompletionJob::constrain() {
  if (request_.constraint.empty()) return;
  try {
    Request probe;
    lease_.engine().constraints().apply(request_.constraint, probe);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), request_.constraint_field);
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

void CompletionJob::read_answers(std::span<const std::vector<int32_t>> prompts) {
  if (head_.tokenizer == nullptr || !is_chat(dialect_)) return;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto* chat = std::get_if<Prompt::Chat>(&request_.prompts[i].content);
    if (chat == nullptr) return;
    AnswerForm form =
        answer_form(*head_.tokenizer, chat->options.chat_template, request_.tools, request_.split_thinking, prompts[i]);
    if (!form.reasoning && !form.calls) return;
    for (int32_t sample = 0; sample < request_.settings.samples; ++sample) {
      form.id_seed = tag_ + readers_.size();
      readers_.push_back(read_answer(form));
    }
    forms_.push_back(std::move(form));
  }
}

void CompletionJob::constrain_calls(size_t prompt, Request& request) {
  if (prompt >= forms_.size() || !request_.constraint.empty()) return;
  const auto form = call_form(forms_[prompt], request_.tools);
  if (!form) return;
  try {
    lease_.engine().constraints().apply(*form, request);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "tools");
  }
}

Request CompletionJob::engine_request(size_t prompt, std::vector<int32_t> ids) {
  Request request = request_.settings;
  request.prompt = std::move(ids);
  request.tag = tag_;
  lease_.engine().constraints().apply(request_.constraint, request);
  constrain_calls(prompt, request);
  request.lookup = request_.lookup.value_or(context_.lookup && !lease_.engine().cache().has_states());
  request.max_draft = std::min(request.max_draft, context_.max_draft);
  if (head_.tokenizer != nullptr && !request_.prediction.empty() && !lease_.engine().cache().has_states()) {
    request.prediction = head_.tokenizer->encode(request_.prediction, {.parse_special = false});
  }
  // Who has another key does not learn from the time an answer takes what was asked before.
  if (key_ < context_.keys.size()) request.cache_salt = context_.keys[key_].salt;
  const auto first = static_cast<int32_t>(prompt) * request.samples;
  request.on_token = [self = shared_from_this(), first](const TokenEvent& token) {
    self->add_token(first + token.sample, token);
    return true;
  };
  if (request_.stream && request_.show_progress) {
    request.on_prompt = [self = shared_from_this(), first](const PromptProgress& progress) {
      self->add_progress(first, progress);
    };
  }
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
void CompletionJob::post_failure(const ApiError& error) noexcept try {
  context_.on_loop([self = shared_from_this(), status = error.status(), message = std::string(error.what()),
                    param = error.param(), code = error.code()] { self->fail({status, message, param, code}); });
} catch (const std::exception& lost) {
  // Without memory even for this the request stays open until its client goes.
  log(LogLevel::warn, "an answer was lost: {}", lost.what());
}

// ---- the engine's thread

void CompletionJob::notify() {
  if (std::exchange(notified_, true)) return;
  context_.outbox.add([self = shared_from_this()] { self->deliver(); });
}

// Of what somebody waits for: a first token, the end.
void CompletionJob::notify_now() {
  notified_ = true;
  context_.outbox.add_now([self = shared_from_this()] { self->deliver(); });
}

void CompletionJob::add_progress(int32_t choice, const PromptProgress& progress) {
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - started_;
  const std::scoped_lock lock(mutex_);
  deltas_.push_back({.choice = choice, .prompt = PromptUpdate{progress, taken.count()}});
  notify();
}

void CompletionJob::add_token(int32_t choice, const TokenEvent& token) {
  const std::scoped_lock lock(mutex_);
  bool is_first = false;
  if (token.id >= 0) {
    auto& last = last_token_[static_cast<size_t>(choice)];
    const auto now = std::chrono::steady_clock::now();
    if (last.time_since_epoch().count() != 0) between_tokens_.add(std::chrono::duration<double>(now - last).count());
    last = now;
    is_first = generated_++ == 0;
    if (is_first) first_token_ = now;
    newest_token_ = now;
  }
  if (!request_.stream && !request_.logprobs()) return;
  deltas_.push_back({.choice = choice,
                     .id = token.id,
                     .text = std::string(token.text),
                     .logprobs = {token.logprobs.begin(), token.logprobs.end()}});
  if (!request_.stream) return;
  if (is_first) return notify_now();
  notify();
}

void CompletionJob::add_result(size_t prompt, const RequestResult& result) {
  const std::scoped_lock lock(mutex_);
  try {
    results_[prompt] = result;
  } catch (...) {
    results_[prompt].error = std::current_exception();
  }
  --unfinished_;
  if (unfinished_ == 0) notify_now();
}

}  // namespace inferno::serve
