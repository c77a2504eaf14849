// One request for completions on its way through the engine and back.
//
// Three threads take turns: the event loop starts it, passes its tokens on and answers; a worker reads its JSON, makes
// its prompt's tokens, submits it and writes long answers; the engine's thread only leaves tokens under a lock. Where
// its model is not loaded, it waits on the event loop for a lease of it and is then read by a worker again.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer_reader.h"
#include "serve/api_error.h"
#include "serve/completion_request.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/outbox.h"
#include "serve/reply.h"
#include "serve/waiting_body.h"

namespace inferno::serve {

// What completions share; outlives them.
struct CompletionContext {
  // Those of one API key.
  struct PerKey {
    std::atomic<int64_t> sequences{0};
    std::string salt = {};  // of its prompts in the cache: made of the key, so that pages that are kept stay the key's
  };

  Models& models;
  int64_t max_sequences = 0;          // of all completions that are open
  int64_t max_sequences_per_key = 0;  // of those with one API key; 0: no limit of its own
  bool show_prompts = false;          // in all answers
  bool lookup = false;                // tokens are guessed from the text, unless a request says no
  int32_t max_draft = kMostDraft;     // at a time
  Post on_loop;
  Post on_worker;
  Post on_embedder;
  std::atomic<int64_t> sequences{0};
  std::atomic<int64_t> embeddings{0};      // requests for them that are open
  std::atomic<bool> closed{false};         // nothing is submitted any more
  std::vector<PerKey> keys = {};           // [API key]
  std::atomic<uint64_t> waiting_bytes{0};  // of bodies that no worker has read yet
  Metrics metrics;                         // the loop's
  Outbox outbox;                           // last: what is left in it ends before all else
};

class CompletionJob final : public Exchange, public ModelWaiter, public std::enable_shared_from_this<CompletionJob> {
 public:
  using OnEnd = std::function<void(const std::shared_ptr<CompletionJob>&)>;

  // on_end is called once, on the loop, when the answer was given and the engine knows of it no more.
  CompletionJob(CompletionContext& context, const HttpHead& head, Dialect dialect, uint64_t seed,
                std::weak_ptr<Responder> responder, OnEnd on_end);

  void start(std::string body);
  void cancel() noexcept override;
  void expire() override;
  void on_silence() override;
  void on_model(ModelLease lease) override;
  void on_model_failure(const ApiError& error) override { fail(error); }
  // The server ends: the client is told.
  void abort();
  // How far it is, for /slots.
  struct State {
    std::string id;
    int64_t prompt_tokens = 0;
    int64_t generated_tokens = 0;
    bool stream = false;
  };
  [[nodiscard]] State state() const;
  [[nodiscard]] const ServedModel* model() const { return begun_ && lease_ ? &lease_.model() : nullptr; }
  // Until the engine has ended it; nothing may be posted to workers any more.
  void wait() const;

 private:
  // ---- a worker (completion_work.cpp, as the engine's)
  using Body = std::shared_ptr<const WaitingBody>;
  void prepare(const Body& body) noexcept;
  void admit(const nlohmann::json& body, std::string_view text);
  void constrain();
  // Where a prompt's answer may call tools: the grammar of it.
  void constrain_calls(size_t prompt, Request& request);
  void add_text_bias(const Tokenizer* tokenizer);
  [[nodiscard]] Request engine_request(size_t prompt, std::vector<int32_t> ids);
  void build_answer() noexcept;

  // ---- the engine's thread
  void add_progress(int32_t choice, const PromptProgress& progress);
  void add_token(int32_t choice, const TokenEvent& token);
  void add_result(size_t prompt, const RequestResult& result);

  // ---- the loop (completion.cpp)
  void wait_for_model(ServedModel& model, const Body& body, bool stream);
  void begin();
  void deliver();
  void pass_on();
  void tell_progress(int32_t choice, const PromptUpdate& prompt);
  void take(Delta& delta);
  void finish();
  void take_over(size_t index, Completion& made);
  void finish_stream();
  void tell(const ApiError& error);
  void fail(const ApiError& error);
  void close();

  // From any thread, with mutex_ held: deliver() will run.
  void notify();
  void notify_now();
  void cancel_tickets() noexcept;
  void post_failure(const ApiError& error) noexcept;
  [[nodiscard]] std::optional<ApiError> failure() const;
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] RequestNote note() const;
  [[nodiscard]] bool take_places();
  void give_places_back() noexcept;
  void read_answers(std::span<const std::vector<int32_t>> prompts);
  [[nodiscard]] std::string stop_of(const Completion& made) const;

  CompletionContext& context_;
  Dialect dialect_;
  uint64_t seed_;
  size_t key_;
  uint64_t tag_;  // of its requests in the engine
  std::weak_ptr<Responder> responder_;
  OnEnd on_end_;
  ErrorForm form_;
  ReplyHead head_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();

  ModelLease lease_;                     // a worker's until begin(), as the next six
  CompletionRequest request_;            // then constant
  std::unique_ptr<ReplyWriter> writer_;  // then the loop's
  std::vector<AnswerForm> forms_;        // [prompt], where answers are taken apart
  std::vector<AnswerReader> readers_;    // [choice], there; then the loop's
  std::vector<std::string> echoes_;      // [prompt], where asked for
  int64_t admitted_ = 0;                 // sequences counted in the context
  Body body_;                            // the loop's: of one that waits for its model; as the next eight
  bool will_stream_ = false;             // of such a one
  bool in_stream_ = false;               // the head of a stream was sent
  bool begun_ = false;
  bool ended_ = false;  // all tokens were taken over
  bool closed_ = false;
  bool client_gone_ = false;
  bool expired_ = false;
  std::vector<Choice> choices_;               // [choice], once all have ended
  std::map<int32_t, int32_t> told_progress_;  // of the prompt of a choice, in tokens

  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;  // of all that follows
  std::vector<std::shared_ptr<Ticket>> tickets_;
  std::vector<Delta> deltas_;
  std::vector<RequestResult> results_;  // [prompt]
  size_t unfinished_ = 0;               // prompts
  int64_t generated_ = 0;               // tokens so far
  bool notified_ = false;
  std::chrono::steady_clock::time_point first_token_, newest_token_;
  std::vector<std::chrono::steady_clock::time_point> last_token_;  // [choice]
  Histogram between_tokens_;
};

}  // namespace inferno::serve
