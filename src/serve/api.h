// The endpoints: which there are, what each answers, and the completions that are open. All on the event loop's thread.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "serve/access.h"
#include "serve/completion.h"
#include "serve/endpoints.h"
#include "serve/http.h"
#include "serve/info.h"
#include "serve/metrics.h"
#include "serve/models.h"

namespace inferno::serve {

struct ApiOptions {
  std::vector<std::string> keys;          // empty: none is needed
  std::vector<std::string> origins = {};  // of pages that may use it (access.h)
  bool local = true;                      // without keys: only for this machine (access.h)
  int64_t max_sequences = 512;            // texts that run or wait; more are turned away
  int64_t max_sequences_per_key = 0;      // the same of one API key; 0: no limit of its own
  std::optional<uint64_t> seed = {};      // of requests that name none; empty: random
  bool llama_metrics = false;             // llama-server's names, too
  bool lookup = false;                    // guess tokens from the text, unless a request says no
  int32_t max_draft = 15;                 // at a time
  bool show_prompts = false;              // in all answers, as where `verbose` asks for it
};

class Api {
 public:
  // The models outlive it.
  Api(Models& models, const ApiOptions& options, const Posts& posts);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // Called with the head of a request, before its body is read; an ApiError for one that will not be answered. Sets
  // its key, and the origin that may read the answer.
  void check(HttpHead& head) const;
  // The answer goes to `responder`, now or later; what is returned lets it be cancelled, null when it is given already.
  std::shared_ptr<Exchange> handle(const HttpHead& head, std::string body, const std::shared_ptr<Responder>& responder);

  [[nodiscard]] std::string new_id();
  [[nodiscard]] Metrics& metrics() { return context_.metrics; }
  // Of bodies that were read and that no worker has got to yet.
  [[nodiscard]] uint64_t waiting_bytes() const { return context_.waiting_bytes; }
  // The name of a path in metrics: those that do not exist are one.
  [[nodiscard]] static std::string_view known_path(std::string_view path);

  // No new completions.
  void drain() { draining_ = true; }
  [[nodiscard]] bool is_idle() const { return open_.empty(); }
  // All that are open end now, with an error for their clients.
  void abort_all();
  // The end: returns when the engine has ended all of them. Nothing may run on workers any more.
  void shut_down();
  // Before workers are stopped: those that run submit nothing any more.
  void refuse() { context_.closed = true; }

 private:
  [[nodiscard]] HttpResponse get(const Endpoint& endpoint, const HttpHead& head) const;
  // The one that a GET asks about, "?model=NAME"; otherwise the one in use.
  [[nodiscard]] const ServedModel& model_of(const HttpHead& head) const;
  [[nodiscard]] std::string metrics_text() const;
  [[nodiscard]] std::string slots(const ServedModel& model) const;
  std::shared_ptr<Exchange> complete(const Endpoint& endpoint, const HttpHead& head, std::string body,
                                     const std::shared_ptr<Responder>& responder);
  std::shared_ptr<Exchange> answer_on_worker(const Endpoint& endpoint, const HttpHead& head, std::string body,
                                             const std::shared_ptr<Responder>& responder);

  CompletionContext context_;
  Access access_;
  Info info_;
  std::optional<uint64_t> seed_;
  bool llama_metrics_;
  bool draining_ = false;
  std::mt19937_64 random_;
  std::set<std::shared_ptr<CompletionJob>> open_;
};

}  // namespace inferno::serve
