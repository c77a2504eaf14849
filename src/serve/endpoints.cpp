#include "serve/endpoints.h"

#include <algorithm>
#include <array>

namespace inferno::serve {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kEmbeddings = "embeddings are";
constexpr std::string_view kRerank = "reranking is";

constexpr std::array kEndpoints = {
    Endpoint{"/", Action::page},
    Endpoint{"/openapi.json", Action::openapi},
    Endpoint{"/health", Action::health},
    Endpoint{"/ready", Action::ready},
    Endpoint{"/metrics", Action::metrics},
    Endpoint{"/v1/models", Action::models},
    Endpoint{"/models", Action::models},
    Endpoint{"/v1/models/{id}", Action::model},
    Endpoint{"/props", Action::props},
    Endpoint{"/slots", Action::slots},
    Endpoint{"/debug/steps", Action::steps},
    Endpoint{"/debug/profile", Action::profile},
    Endpoint{"/api/tags", Action::tags},
    Endpoint{"/api/ps", Action::processes},
    Endpoint{"/api/version", Action::version},
    Endpoint{"/api/show", Action::show},
    Endpoint{"/tokenize", Action::tokenize},
    Endpoint{"/detokenize", Action::detokenize},
    Endpoint{"/apply-template", Action::apply_template},
    Endpoint{"/v1/messages/count_tokens", Action::count_tokens},
    Endpoint{"/v1/chat/completions", Action::complete, Dialect::openai_chat},
    Endpoint{"/chat/completions", Action::complete, Dialect::openai_chat},
    Endpoint{"/v1/completions", Action::complete, Dialect::openai_text},
    Endpoint{"/v1/responses", Action::complete, Dialect::responses},
    Endpoint{"/v1/messages", Action::complete, Dialect::anthropic},
    Endpoint{"/completion", Action::complete, Dialect::native},
    Endpoint{"/completions", Action::complete, Dialect::native},
    Endpoint{"/api/chat", Action::complete, Dialect::ollama_chat},
    Endpoint{"/api/generate", Action::complete, Dialect::ollama_generate},
    Endpoint{"/v1/embeddings", Action::unsupported, {}, kEmbeddings},
    Endpoint{"/embeddings", Action::unsupported, {}, kEmbeddings},
    Endpoint{"/embedding", Action::unsupported, {}, kEmbeddings},
    Endpoint{"/api/embed", Action::unsupported, {}, kEmbeddings},
    Endpoint{"/api/embeddings", Action::unsupported, {}, kEmbeddings},
    Endpoint{"/v1/rerank", Action::unsupported, {}, kRerank},
    Endpoint{"/rerank", Action::unsupported, {}, kRerank},
    Endpoint{"/infill", Action::unsupported, {}, "filling in the middle is"},
};

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

const Endpoint* find_endpoint(std::string_view path) {
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) path = "/v1/models/{id}";
  const auto* found = std::ranges::find(kEndpoints, path, &Endpoint::path);
  return found == kEndpoints.end() ? nullptr : found;
}

std::string_view model_id(std::string_view path) {
  return path.substr(kModelPrefix.size());
}

}  // namespace inferno::serve
