#include "serve/api.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "serve/api_error.h"

namespace inferno::serve {
namespace {

constexpr std::string_view kModels = "/v1/models";
constexpr std::string_view kChat = "/v1/chat/completions";
constexpr std::string_view kCompletions = "/v1/completions";

struct Endpoint {
  std::string_view path;
  bool post;
};
constexpr std::array kEndpoints = {Endpoint{"/health", false}, Endpoint{"/metrics", false}, Endpoint{kModels, false},
                                   Endpoint{kChat, true}, Endpoint{kCompletions, true}};

bool is_model_path(std::string_view path) {
  return path.starts_with(kModels) && path.size() > kModels.size() + 1 && path[kModels.size()] == '/';
}

}  // namespace

Api::Api(Engine& engine, const ApiOptions& options, Post on_loop, Post on_worker)
    : context_{.engine = engine,
               .limits = {.model = options.model, .context = engine.context()},
               .max_sequences = options.max_sequences,
               .on_loop = std::move(on_loop),
               .on_worker = std::move(on_worker)},
      access_(options.keys, options.local),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      random_(std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)) {}

std::string Api::new_id() {
  return fmt::format("{:016x}{:08x}", random_(), random_() >> 32);
}

std::string_view Api::known_path(std::string_view path) {
  for (const Endpoint& endpoint : kEndpoints) {
    if (endpoint.path == path) return endpoint.path;
  }
  return is_model_path(path) ? "/v1/models/ID" : "other";
}

void Api::check(const HttpHead& head) const {
  access_.check(head);
  const auto* endpoint = std::ranges::find(kEndpoints, head.path, &Endpoint::path);
  const bool known = endpoint != kEndpoints.end();
  if (!known && !is_model_path(head.path)) {
    throw ApiError(404, "there is nothing at this path; docs/serve.md lists what there is");
  }
  const bool is_post = known && endpoint->post;
  const bool fits = is_post ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!fits)
    throw ApiError(405, fmt::format("this path takes {} alone", is_post ? "POST" : "GET"), {},
                   is_post ? "use_post" : "use_get");
  if (!is_post) return;
  if (draining_) throw ApiError(503, "the server is shutting down");
  if (context_.sequences >= context_.max_sequences) {
    throw ApiError(429, "too many requests wait here; try again later", {}, "queue_full");
  }
}

std::shared_ptr<Exchange> Api::handle(const HttpHead& head, std::string body,
                                      const std::shared_ptr<Responder>& responder) {
  if (head.method != "POST") {
    HttpResponse response;
    try {
      response = get(head);
    } catch (const ApiError& error) {
      response = error_response(error);
    }
    responder->respond(std::move(response), {});
    return nullptr;
  }
  auto job =
      std::make_shared<CompletionJob>(context_, head, head.path == kChat, random_(), responder,
                                      [this](const std::shared_ptr<CompletionJob>& ended) { open_.erase(ended); });
  open_.insert(job);
  job->start(std::move(body));
  return job;
}

std::string Api::model_json() const {
  const nlohmann::ordered_json model = {{"id", context_.limits.model},
                                        {"object", "model"},
                                        {"created", created_},
                                        {"owned_by", "inferno"},
                                        {"max_model_len", context_.limits.context}};
  return model.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpResponse Api::get(const HttpHead& head) const {
  if (head.path == "/health") {
    if (draining_) throw ApiError(503, "the server is shutting down");
    return {.body = "{\"status\":\"ok\"}\n"};
  }
  if (head.path == "/metrics") {
    return {.body = context_.metrics.text(context_.engine.scheduler().stats()),
            .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }
  if (head.path == kModels) {
    return {.body = fmt::format("{{\"object\":\"list\",\"data\":[{}]}}\n", model_json())};
  }
  if (head.path.substr(kModels.size() + 1) != context_.limits.model) {
    throw ApiError(404, fmt::format("there is no such model here; this server has \"{}\"", context_.limits.model),
                   "model", "model_not_found");
  }
  return {.body = model_json() + "\n"};
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
