#include "serve/api.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "inferno/inferno.h"
#include "serve/api_error.h"
#include "serve/assets.h"
#include "serve/embeddings.h"
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

// What a page of another site may send.
HttpResponse preflight(const Endpoint& endpoint, const HttpHead& head) {
  HttpResponse response{.content_type = {}};
  if (head.allowed_origin.empty()) return response;  // nothing, and so its browser does not ask further
  response.headers.emplace_back("Access-Control-Allow-Methods", endpoint.is_post() ? "POST" : "GET, HEAD");
  const bool is_list = std::ranges::all_of(head.asked_fields, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == ',' || c == ' ';
  });
  if (is_list && !head.asked_fields.empty())
    response.headers.emplace_back("Access-Control-Allow-Headers", head.asked_fields);
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

HttpResponse profile(const ServedModel& model) {
  const ProfileSource& source = model.loaded.profile;
  if (!source.json) throw ApiError(404, "no profile of this model is measured; the server has to be started so");
  return {.body = source.json() + "\n"};
}

}  // namespace

Api::Api(Models& models, const ApiOptions& options, const Posts& posts)
    : context_{.models = models,
               .max_sequences = options.max_sequences,
               .max_sequences_per_key = options.max_sequences_per_key,
               .show_prompts = options.show_prompts,
               .lookup = options.lookup,
               .max_draft = options.max_draft,
               .on_loop = posts.loop,
               .on_worker = posts.worker,
               .on_embedder = posts.embedder,
               .keys = std::vector<CompletionContext::PerKey>(options.keys.size()),
               .outbox{posts.loop, posts.loop_later}},
      access_(options.keys, options.local, options.origins),
      info_{.models = models, .created = unix_now(), .seed = options.seed},
      seed_(options.seed),
      llama_metrics_(options.llama_metrics),
      random_(std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)) {
  for (size_t i = 0; i < options.keys.size(); ++i) {
    const PageKey salt = root_key(options.keys[i]);
    context_.keys[i].salt = fmt::format("key {:016x}{:016x}", salt.high, salt.low);
  }
}

std::string Api::new_id() {
  return fmt::format("{:016x}{:08x}", random_(), random_() >> 32);
}

std::string_view Api::known_path(std::string_view path) {
  const Endpoint* endpoint = find_endpoint(path);
  return endpoint == nullptr ? "other" : endpoint->path;
}

void Api::check(HttpHead& head) const {
  const Endpoint* endpoint = find_endpoint(head.path);
  head.allowed_origin = access_.allowed_origin(head);
  const bool asks_first = head.is_preflight() && access_.has_origins();  // and has no key then
  if (!asks_first) head.key = access_.check(head, endpoint != nullptr && endpoint->is_open());
  if (endpoint == nullptr) {
    throw ApiError(404, "there is nothing at this path; docs/serve.md lists what there is");
  }
  if (asks_first) return;
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
  if (endpoint->makes_vectors() && context_.embeddings >= context_.max_sequences) fail_queue_full();
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
  if (head.is_preflight()) {
    responder->respond(preflight(endpoint, head), {});
    return nullptr;
  }
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
      std::make_shared<CompletionJob>(context_, head, endpoint.dialect, seed_.value_or(random_()), responder,
                                      [this](const std::shared_ptr<CompletionJob>& ended) { open_.erase(ended); });
  open_.insert(job);
  job->start(std::move(body));
  return job;
}

// Bodies are read, and texts made to tokens, off the loop.
std::shared_ptr<Exchange> Api::answer_on_worker(const Endpoint& endpoint, const HttpHead& head, std::string body,
                                                const std::shared_ptr<Responder>& responder) {
  const auto answer = [this, &endpoint](const WorkerJob::Question& question) {
    const ServedModel& model = question.model;
    if (question.engine == nullptr) return info_.show_json(model);
    if (endpoint.makes_vectors()) return run_embeddings(endpoint, question);
    return run_text_tool(endpoint, question.body, question.text, model.limits, question.engine->tokenizer());
  };
  auto job = std::make_shared<WorkerJob>(context_, head, responder, endpoint, answer);
  job->start(std::move(body));
  return job;
}

const ServedModel& Api::model_of(const HttpHead& head) const {
  const std::string name = query_value(head.query, "model");
  return name.empty() ? context_.models.current() : context_.models.find(name);
}

std::string Api::metrics_text() const {
  Models& models = context_.models;
  std::string text = context_.metrics.text(models.stats(), models.pages(), models.current().loaded.profile);
  ModelCounts counts;
  for (const ServedModel& model : models.all()) {
    counts.push_back({.name = model.name,
                      .is_loaded = models.status(model).state == ServedModel::State::loaded,
                      .bytes = model.facts.memory_bytes,
                      .loads = model.loads,
                      .unloads = model.unloads,
                      .failures = model.failures});
  }
  add_models(text, counts);
  if (llama_metrics_) add_llama_names(text, context_.metrics, models.stats());
  return text;
}

std::string Api::slots(const ServedModel& model) const {
  std::vector<CompletionJob::State> states;
  for (const auto& job : open_) {
    if (job->model() == &model) states.push_back(job->state());
  }
  return info_.slots_json(model, states);
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
      return {.body = metrics_text(),
              .content_type = "text/plain; version=0.0.4; charset=utf-8",
              .headers = {{"Process-Start-Time-Unix", std::to_string(info_.created)}}};
    case Action::models:
      return {.body = info_.models_json() + "\n"};
    case Action::model:
      return {.body = info_.model_json(context_.models.find(model_id(head.path))) + "\n"};
    case Action::props:
      return {.body = info_.props_json(model_of(head)) + "\n"};
    case Action::slots:
      return {.body = slots(model_of(head)) + "\n"};
    case Action::steps:
      return {.body = info_.steps_json(model_of(head)) + "\n"};
    case Action::profile:
      return profile(model_of(head));
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
  // One that only waited for its model ends at once.
  const auto all = open_;
  for (const auto& job : all) job->abort();
}

void Api::shut_down() {
  abort_all();
  for (const auto& job : open_) job->wait();
  open_.clear();
}

}  // namespace inferno::serve
