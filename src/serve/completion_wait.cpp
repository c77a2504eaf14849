// A request whose model is not loaded yet, and requests that end before they are done. All on the event loop's thread.
#include <utility>

#include "serve/completion.h"

namespace inferno::serve {

void CompletionJob::wait_for_model(ServedModel& model, const Body& body, bool stream) {
  if (cancelled_.load(std::memory_order_relaxed)) return fail({503, "the server is shutting down"});
  body_ = body;
  will_stream_ = stream;
  context_.models.wait_for(model, shared_from_this());
}

void CompletionJob::on_model(ModelLease lease) {
  if (closed_) return;
  lease_ = std::move(lease);
  context_.on_worker([self = shared_from_this(), body = std::exchange(body_, {})] { self->prepare(body); });
}

// Loading may take long: a stream begins before its model is there, and comments keep it alive. Not of lines of JSON,
// which have no comments.
void CompletionJob::on_silence() {
  const auto responder = responder_.lock();
  if (body_ == nullptr || !will_stream_ || in_stream_ || responder == nullptr || form_ == ErrorForm::ollama) return;
  in_stream_ = true;
  responder->begin(kEventStream);
  responder->write(": loading the model\n\n");
  responder->flush();
}

void CompletionJob::cancel() noexcept {
  client_gone_ = true;
  cancel_tickets();
  if (body_ != nullptr) close();
}

void CompletionJob::expire() {
  expired_ = true;
  cancel_tickets();
  tell(timeout_error());
  if (body_ != nullptr) close();
}

void CompletionJob::abort() {
  cancel_tickets();
  if (body_ != nullptr) fail({503, "the server is shutting down"});
}

}  // namespace inferno::serve
