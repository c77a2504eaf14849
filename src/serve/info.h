// What the server says about its model, its settings and what it is doing, as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/engine.h"
#include "serve/completion.h"

namespace inferno::serve {

struct Info {
  Engine& engine;
  std::string model;    // the name clients know it by
  int64_t created = 0;  // seconds since 1970

  [[nodiscard]] std::string model_json() const;   // of /v1/models/{id}
  [[nodiscard]] std::string models_json() const;  // of /v1/models
  [[nodiscard]] std::string props_json() const;
  [[nodiscard]] std::string slots_json(std::span<const CompletionJob::State> open) const;
  [[nodiscard]] std::string steps_json() const;
  // Ollama's.
  [[nodiscard]] std::string tags_json() const;
  [[nodiscard]] std::string processes_json() const;
  [[nodiscard]] std::string show_json() const;
};

}  // namespace inferno::serve
