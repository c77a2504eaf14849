#include "serve/endpoints.h"

#include <algorithm>
#include <array>

namespace inferno::serve {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

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
    Endpoint{"/v1/messages/count_tokens", Action::count_tokens, Dialect::anthropic},
    Endpoint{"/v1/chat/completions/input_tokens", Action::count_tokens, Dialect::openai_chat},
    Endpoint{"/chat/completions/input_tokens", Action::count_tokens, Dialect::openai_chat},
    Endpoint{"/v1/responses/input_tokens", Action::count_tokens, Dialect::responses},
    Endpoint{"/v1/chat/completions", Action::complete, Dialect::openai_chat},
    Endpoint{"/chat/completions", Action::complete, Dialect::openai_chat},
    Endpoint{"/v1/completions", Action::complete, Dialect::openai_text},
    Endpoint{"/v1/responses", Action::complete, Dialect::responses},
    Endpoint{"/responses", Action::complete, Dialect::responses},
    Endpoint{"/v1/messages", Action::complete, Dialect::anthropic},
    Endpoint{"/completion", Action::complete, Dialect::native},
    Endpoint{"/completions", Action::complete, Dialect::native},
    Endpoint{"/api/chat", Action::complete, Dialect::ollama_chat},
    Endpoint{"/api/generate", Action::complete, Dialect::ollama_generate},
    Endpoint{"/v1/embeddings", Action::embeddings},
    Endpoint{"/embeddings", Action::embeddings, Dialect::native},
    Endpoint{"/embedding", Action::embeddings, Dialect::native},
    Endpoint{"/api/embed", Action::embeddings, Dialect::ollama_chat},
    Endpoint{"/api/embeddings", Action::embeddings, Dialect::ollama_generate},
    Endpoint{"/v1/rerank", Action::rerank},
    Endpoint{"/rerank", Action::rerank},
    Endpoint{"/reranking", Action::rerank},
    Endpoint{"/v1/reranking", Action::rerank},
    Endpoint{"/v2/rerank", Action::rerank},
    Endpoint{"/infill", Action::unsupported, {}, "filling in the middle is"},
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// "%2F" to "/"; what is no such code stays.
std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

const Endpoint* find_endpoint(std::string_view path) {
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) path = "/v1/models/{id}";
  const auto* found = std::ranges::find(kEndpoints, path, &Endpoint::path);
  return found == kEndpoints.end() ? nullptr : found;
}

std::string model_id(std::string_view path) {
  return decoded(path.substr(kModelPrefix.size()));
}

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    const size_t middle = std::min(part.find('='), part.size());
    if (part.substr(0, middle) == name) return decoded(part.substr(std::min(middle + 1, part.size())));
  }
  return {};
}

}  // namespace inferno::serve
