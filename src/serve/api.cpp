#include "serve/api.h"

#include <algorithm>

#include "base/error.h"
#include "inferno/inferno.h"
#include "serve/api_error.h"
#include "serve/assets.h"
#include "serve/request_fields.h"
#include "serve/request_log.h"
#include "serve/text_tools.h"
#include "serve/worker_job.h"

namespace inferno::serve {
namespace {

[[noreturn]] void fail_queue_full() {
  throw ApiError(429, "too many requests wait here; try again later", {}, "queue_full");
}

HttpResponse page() {
  // The page is one file that needs nothing but this server.
  return {.body = std::string(page_html()),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                       "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

CompletionLimits limits_of(const Engine& engine, const std::string& model) {
  const Tokenizer* tokenizer = engine.tokenizer();
  return {.model = model,
          .context = engine.context(),
          .has_template = tokenizer != nullptr && !tokenizer->chat_template().empty()};
}

}  // namespace

Api::Api(Engine& engine, const ApiOptions& options, Post on_loop, Post on_worker)
    : context_{.engine = engine,
               .limits = limits_of(engine, options.model),
               .max_sequences = options.max_sequences,
               .max_sequences_per_key = options.max_sequences_per_key,
               .on_loop = std::move(on_loop),
               .on_worker = std::move(on_worker),
               .keys = std::vector<CompletionContext::PerKey>(options.keys.size())},
      access_(options.keys, options.local),
      info_{.engine = engine, .model = options.model, .created = unix_now()},
      profile_(options.profile),
      random_(std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)) {}

std::string Api::new_id() {
  return fmt::format("{:016x}{:08x}", random_(), random_() >> 32);
}

std::string_view Api::known_path(std::string_view path) {
  const Endpoint* endpoint = find_endpoint(path);
  return endpoint == nullptr ? "other" : endpoint->path;
}

void Api::check(HttpHead& head) const {
  const Endpoint* endpoint = find_endpoint(head.path);
  head.key = access_.check(head, endpoint != nullptr && endpoint->is_open());
  if (endpoint == nullptr) {
    throw ApiError(404, "there is nothing at this path; docs/serve.md lists what there is");
  }
  const bool is_post = endpoint->is_post();
  const bool fits = is_post ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!fits)
    throw ApiError(405, fmt::format("this path takes {} alone", is_post ? "POST" : "GET"), {},
                   is_post ? "use_post" : "use_get");
  if (!is_post) return;
  if (endpoint->action == Action::unsupported) {
    throw ApiError(501, fmt::format("{} not supported yet", endpoint->lacks), {}, "not_supported");
  }
  if (draining_) throw ApiError(503, "the server is shutting down");
  if (endpoint->action != Action::complete) return;
  // Those that no worker has read yet count, too: each will have one sequence at least.
  if (std::max<int64_t>(context_.sequences, context_.metrics.open) >= context_.max_sequences) fail_queue_full();
  if (head.key < context_.keys.size() && context_.max_sequences_per_key > 0 &&
      context_.keys[head.key].sequences >= context_.max_sequences_per_key) {
    fail_queue_full();
  }
}

std::shared_ptr<Exchange> Api::handle(const HttpHead& head, std::string body,
                                      const std::shared_ptr<Responder>& responder) {
  const Endpoint& endpoint = *find_endpoint(head.path);
  if (endpoint.action == Action::complete) return complete(endpoint, head, std::move(body), responder);
  if (endpoint.is_post()) return answer_on_worker(endpoint, head, std::move(body), responder);
  HttpResponse response;
  RequestNote note;
  try {
    response = get(endpoint, head);
  } catch (...) {
    const ApiError error = current_error();
    response = error_response(error, error_form(head.path));
    note.error = error.what();
  }
  responder->respond(std::move(response), note);
  return nullptr;
}

std::shared_ptr<Exchange> Api::complete(const Endpoint& endpoint, const HttpHead& head, std::string body,
                                        const std::shared_ptr<Responder>& responder) {
  auto job =
      std::make_shared<CompletionJob>(context_, head, endpoint.dialect, random_(), responder,
                                      [this](const std::shared_ptr<CompletionJob>& ended) { open_.erase(ended); });
  open_.insert(job);
  job->start(std::move(body));
  return job;
}

std::string Api::answer_body(const Endpoint& endpoint, const std::string& body) const {
  if (endpoint.action != Action::show) {
    return run_text_tool(endpoint.action, body, context_.limits, context_.engine.tokenizer());
  }
  const Json parsed = parse_object(body);
  check_model(Fields(parsed), context_.limits.model);
  return info_.show_json();
}

// Bodies are read, and texts made to tokens, off the loop.
std::shared_ptr<Exchange> Api::answer_on_worker(const Endpoint& endpoint, const HttpHead& head, std::string body,
                                                const std::shared_ptr<Responder>& responder) {
  auto job = std::make_shared<WorkerJob>(
      context_, head, responder, [this, &endpoint](const std::string& text) { return answer_body(endpoint, text); });
  job->start(std::move(body));
  return job;
}

HttpResponse Api::model(const HttpHead& head) const {
  if (model_id(head.path) != context_.limits.model) {
    throw ApiError(404, fmt::format("there is no such model here; this server has \"{}\"", context_.limits.model),
                   "model", "model_not_found");
  }
  return {.body = info_.model_json() + "\n"};
}

HttpResponse Api::get(const Endpoint& endpoint, const HttpHead& head) const {
  switch (endpoint.action) {
    case Action::page:
      return page();
    case Action::openapi:
      return {.body = std::string(openapi_json())};
    case Action::health:
    case Action::ready:
      if (draining_) throw ApiError(503, "the server is shutting down");
      return {.body = "{\"status\":\"ok\"}\n"};
    case Action::metrics:
      return {.body = context_.metrics.text(context_.engine.scheduler().stats(), context_.engine.scheduler().pages(),
                                            profile_),
              .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    case Action::models:
      return {.body = info_.models_json() + "\n"};
    case Action::model:
      return model(head);
    case Action::props:
      return {.body = info_.props_json() + "\n"};
    case Action::slots: {
      std::vector<CompletionJob::State> states;
      for (const auto& job : open_) states.push_back(job->state());
      return {.body = info_.slots_json(states) + "\n"};
    }
    case Action::steps:
      return {.body = info_.steps_json() + "\n"};
    case Action::profile:
      if (!profile_.json) throw ApiError(404, "this server measures no profile; it has to be started so");
      return {.body = profile_.json() + "\n"};
    case Action::tags:
      return {.body = info_.tags_json() + "\n"};
    case Action::processes:
      return {.body = info_.processes_json() + "\n"};
    case Action::version:
      return {.body = fmt::format("{{\"version\":\"{}\"}}\n", version())};
    default:
      throw ApiError(404, "there is nothing at this path");
  }
}

void Api::abort_all() {
  for (const auto& job : open_) job->abort();
}

void Api::shut_down() {
  abort_all();
  for (const auto& job : open_) job->wait();
  open_.clear();
}

}  // namespace inferno::serve
