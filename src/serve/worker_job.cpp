#include "serve/worker_job.h"

#include <utility>

#include "serve/api_error.h"

namespace inferno::serve {

WorkerJob::WorkerJob(CompletionContext& context, const HttpHead& head, std::weak_ptr<Responder> responder,
                     Answer answer)
    : context_(context), form_(error_form(head.path)), responder_(std::move(responder)), answer_(std::move(answer)) {}

void WorkerJob::start(std::string body) {
  auto waiting = std::make_shared<WaitingBody>(std::move(body), context_.waiting_bytes);
  context_.on_worker([self = shared_from_this(), waiting = std::move(waiting)] { self->work(waiting->text()); });
}

void WorkerJob::work(const std::string& body) {
  if (cancelled_.load(std::memory_order_relaxed)) return;
  HttpResponse response;
  RequestNote note;
  try {
    response.body = answer_(body) + "\n";
  } catch (...) {
    const ApiError error = current_error();
    response = error_response(error, form_);
    note.error = error.what();
  }
  context_.on_loop([self = shared_from_this(), answer = std::move(response), said = std::move(note)] {
    self->respond(answer, said);
  });
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
