// A request that a worker answers by itself, without the engine: tokens of a text, a template.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "serve/completion.h"
#include "serve/http.h"

namespace inferno::serve {

class WorkerJob final : public Exchange, public std::enable_shared_from_this<WorkerJob> {
 public:
  // Makes the answer's body of the request's; an exception is the answer otherwise.
  using Answer = std::function<std::string(const std::string& body)>;

  WorkerJob(CompletionContext& context, const HttpHead& head, std::weak_ptr<Responder> responder, Answer answer);

  void start(std::string body);
  // What no worker has begun by then is not done at all.
  void cancel() noexcept override { cancelled_.store(true, std::memory_order_relaxed); }
  void expire() override;

 private:
  void work(const std::string& body);
  void respond(HttpResponse response, const RequestNote& note);

  CompletionContext& context_;
  ErrorForm form_;
  std::weak_ptr<Responder> responder_;  // the loop's
  Answer answer_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace inferno::serve
