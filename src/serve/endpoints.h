// The paths there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "serve/dialect.h"

namespace inferno::serve {

enum class Action : uint8_t {
  page,
  openapi,
  health,
  ready,
  metrics,
  models,
  model,
  props,
  slots,
  steps,
  profile,
  tags,
  processes,
  version,
  // What follows reads a body.
  show,
  tokenize,
  detokenize,
  apply_template,
  count_tokens,
  embeddings,
  rerank,
  complete,
  unsupported,
};

struct Endpoint {
  std::string_view path;
  Action action;
  Dialect dialect = Dialect::openai_text;  // of `complete`, `count_tokens` and `embeddings`
  std::string_view lacks = {};             // of `unsupported`: what is not there yet

  [[nodiscard]] bool is_post() const { return action >= Action::show; }
  [[nodiscard]] bool makes_vectors() const { return action == Action::embeddings || action == Action::rerank; }
  // Needs no API key.
  [[nodiscard]] bool is_open() const { return action <= Action::ready && action != Action::openapi; }
};

[[nodiscard]] std::span<const Endpoint> endpoints();
// Null: there is none. All models have one, "/v1/models/{id}".
[[nodiscard]] const Endpoint* find_endpoint(std::string_view path);
// The id in "/v1/models/ID".
[[nodiscard]] std::string model_id(std::string_view path);
// Of a query "a=1&b=2", "%20" read as what it stands for; empty: it is not there.
[[nodiscard]] std::string query_value(std::string_view query, std::string_view name);

}  // namespace inferno::serve
