// What the server says about its models, its settings and what it is doing, as JSON. Only on the event loop's thread,
// but for show_json().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "serve/completion.h"
#include "serve/models.h"

namespace inferno::serve {

struct Info {
  Models& models;
  int64_t created = 0;                // seconds since 1970: when the server was started
  std::optional<uint64_t> seed = {};  // of requests that name none; empty: random

  [[nodiscard]] std::string model_json(const ServedModel& model) const;  // of /v1/models/{id}
  [[nodiscard]] std::string models_json() const;                         // of /v1/models
  [[nodiscard]] std::string props_json(const ServedModel& model) const;
  [[nodiscard]] std::string slots_json(const ServedModel& model, std::span<const CompletionJob::State> open) const;
  // Without steps where the model is not loaded.
  [[nodiscard]] std::string steps_json(const ServedModel& model) const;
  // Ollama's.
  [[nodiscard]] std::string tags_json() const;
  [[nodiscard]] std::string processes_json() const;  // of those that are loaded
  [[nodiscard]] std::string show_json(const ServedModel& model) const;
};

}  // namespace inferno::serve
