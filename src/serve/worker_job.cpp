#include "serve/worker_job.h"

#include <utility>

#include "serve/api_error.h"
#include "serve/request_fields.h"

namespace inferno::serve {

WorkerJob::WorkerJob(CompletionContext& context, const HttpHead& head, std::weak_ptr<Responder> responder,
                     const Endpoint& endpoint, Answer answer)
    : context_(context),
      form_(error_form(head.path)),
      responder_(std::move(responder)),
      endpoint_(endpoint),
      answer_(std::move(answer)) {
  if (endpoint_.makes_vectors()) ++context_.embeddings;
}

WorkerJob::~WorkerJob() {
  if (endpoint_.makes_vectors()) --context_.embeddings;
}

// Workers are few: who waits for steps of a model has another thread.
const Post& WorkerJob::post() const {
  return endpoint_.makes_vectors() ? context_.on_embedder : context_.on_worker;
}

void WorkerJob::start(std::string body) {
  auto waiting = std::make_shared<const WaitingBody>(std::move(body), context_.waiting_bytes);
  post()([self = shared_from_this(), waiting = std::move(waiting)] { self->work(waiting); });
}

std::optional<std::string> WorkerJob::try_answer(const Body& body) {
  const Json parsed = parse_object(body->text());
  ServedModel& model = context_.models.find(model_of(Fields(parsed)));
  const auto ask = [&](Engine* engine) {
    return answer_({.body = parsed, .text = body->text(), .model = model, .engine = engine, .is_pointless = [this] {
                      return cancelled_.load(std::memory_order_relaxed) || context_.closed;
                    }});
  };
  if (endpoint_.action == Action::show) return ask(nullptr);
  if (!lease_) lease_ = context_.models.try_lease(model);
  if (lease_) return ask(&lease_.engine());
  context_.on_loop([self = shared_from_this(), &model, body] {
    self->body_ = body;
    self->context_.models.wait_for(model, self);
  });
  return std::nullopt;
}

void WorkerJob::work(const Body& body) {
  if (cancelled_.load(std::memory_order_relaxed)) return lease_.release();
  HttpResponse response;
  RequestNote note;
  try {
    const std::optional<std::string> answer = try_answer(body);
    if (!answer) return;
    response.body = *answer + "\n";
  } catch (...) {
    const ApiError error = current_error();
    response = error_response(error, form_);
    note.error = error.what();
  }
  lease_.release();
  context_.on_loop([self = shared_from_this(), answer = std::move(response), said = std::move(note)] {
    self->respond(answer, said);
  });
}

void WorkerJob::on_model(ModelLease lease) {
  lease_ = std::move(lease);
  post()([self = shared_from_this(), body = std::exchange(body_, {})] { self->work(body); });
}

void WorkerJob::on_model_failure(const ApiError& error) {
  respond(error_response(error, form_), {.error = error.what()});
}

void WorkerJob::respond(HttpResponse response, const RequestNote& note) {
  // Once: the connection may have its next request by then.
  if (const auto responder = std::exchange(responder_, {}).lock()) responder->respond(std::move(response), note);
}

void WorkerJob::expire() {
  cancel();
  const ApiError error = timeout_error();
  respond(error_response(error, form_), {.error = error.what()});
}

}  // namespace inferno::serve
