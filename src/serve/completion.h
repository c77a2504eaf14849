// One request for completions on its way through the engine and back.
//
// Three threads take turns: the event loop starts it, passes its tokens on and answers; a worker reads its JSON, makes
// its prompt's tokens, submits it and writes long answers; the engine's thread only leaves tokens under a lock.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/completion_request.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/reply.h"

namespace inferno::serve {

// Runs it later on a certain thread; from any thread.
using Post = std::function<void(std::function<void()>)>;

// What completions share; outlives them.
struct CompletionContext {
  Engine& engine;
  CompletionLimits limits;
  int64_t max_sequences = 0;  // of all completions that are open
  Post on_loop;
  Post on_worker;
  std::atomic<int64_t> sequences{0};
  std::atomic<bool> closed{false};  // nothing is submitted any more
  Metrics metrics;                  // the loop's
};

class CompletionJob final : public Exchange, public std::enable_shared_from_this<CompletionJob> {
 public:
  using OnEnd = std::function<void(const std::shared_ptr<CompletionJob>&)>;

  // on_end is called once, on the loop, when the answer was given and the engine knows of it no more.
  CompletionJob(CompletionContext& context, const HttpHead& head, bool chat, uint64_t seed,
                std::weak_ptr<Responder> responder, OnEnd on_end);

  void start(std::string body);
  void cancel() noexcept override;
  // The server ends: the client is told.
  void abort() noexcept;
  // Until the engine has ended it; nothing may be posted to workers any more.
  void wait() const;

 private:
  // ---- a worker
  void prepare(const std::string& body) noexcept;
  void admit(const std::string& body);
  [[nodiscard]] Request engine_request(size_t prompt, std::vector<int32_t> ids);
  void build_answer() noexcept;

  // ---- the engine's thread
  void add_token(int32_t choice, const TokenEvent& token);
  void add_result(size_t prompt, const RequestResult& result);

  // ---- the loop
  void begin();
  void deliver();
  void write(const Delta& delta);
  void finish();
  void finish_stream();
  void fail(const ApiError& error);
  void close();

  // From any thread, with mutex_ held: deliver() will run.
  void notify();
  void cancel_tickets() noexcept;
  void post_failure(const ApiError& error);
  [[nodiscard]] std::optional<ApiError> failure() const;
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] std::string note() const;

  CompletionContext& context_;
  bool chat_;
  uint64_t seed_;
  std::weak_ptr<Responder> responder_;
  OnEnd on_end_;
  ReplyWriter writer_;
  ReplyHead head_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();

  CompletionRequest request_;        // a worker's until begin(), then constant
  std::vector<std::string> echoes_;  // [prompt], where asked for
  int64_t admitted_ = 0;             // sequences counted in the context
  bool begun_ = false;               // the loop's, as the next five
  bool ended_ = false;               // all tokens were taken over
  bool closed_ = false;
  bool client_gone_ = false;
  std::vector<size_t> text_offsets_;  // [choice] characters written
  std::vector<Choice> choices_;       // [choice], once all have ended

  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;  // of all that follows
  std::vector<std::shared_ptr<Ticket>> tickets_;
  std::vector<Delta> deltas_;
  std::vector<RequestResult> results_;  // [prompt]
  size_t unfinished_ = 0;               // prompts
  bool notified_ = false;
  std::vector<std::chrono::steady_clock::time_point> last_token_;  // [choice]
  Histogram between_tokens_;
};

}  // namespace inferno::serve
