// A request that a worker answers by itself, without the scheduler: tokens of a text, a template, vectors of texts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "serve/completion.h"
#include "serve/endpoints.h"
#include "serve/http.h"

namespace inferno::serve {

class WorkerJob final : public Exchange, public ModelWaiter, public std::enable_shared_from_this<WorkerJob> {
 public:
  struct Question {
    const nlohmann::json& body;
    std::string_view text;  // of the body
    const ServedModel& model;
    Engine* engine;                      // null where the endpoint needs none
    std::function<bool()> is_pointless;  // nobody waits for the answer any more
  };
  // Makes the answer's body; an exception is the answer otherwise.
  using Answer = std::function<std::string(const Question& question)>;

  WorkerJob(CompletionContext& context, const HttpHead& head, std::weak_ptr<Responder> responder,
            const Endpoint& endpoint, Answer answer);
  ~WorkerJob() override;
  WorkerJob(const WorkerJob&) = delete;
  WorkerJob& operator=(const WorkerJob&) = delete;

  void start(std::string body);
  // What no worker has begun by then is not done at all; vectors end with the step.
  void cancel() noexcept override { cancelled_.store(true, std::memory_order_relaxed); }
  void expire() override;
  void on_model(ModelLease lease) override;
  void on_model_failure(const ApiError& error) override;

 private:
  using Body = std::shared_ptr<const WaitingBody>;
  [[nodiscard]] const Post& post() const;
  void work(const Body& body);
  // Nothing when it has to wait for its model.
  [[nodiscard]] std::optional<std::string> try_answer(const Body& body);
  void respond(HttpResponse response, const RequestNote& note);

  CompletionContext& context_;
  ErrorForm form_;
  std::weak_ptr<Responder> responder_;  // the loop's
  const Endpoint& endpoint_;
  Answer answer_;
  Body body_;         // the loop's: of one that waits for its model
  ModelLease lease_;  // a worker's, for as long as it works
  std::atomic<bool> cancelled_{false};
};

}  // namespace inferno::serve
