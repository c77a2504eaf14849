// Endpoints that turn texts into vectors, or pairs of texts into scores: JSON in, JSON out. For workers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"
#include "serve/endpoints.h"
#include "serve/served_model.h"

namespace inferno::serve {

// Of OpenAI's and Ollama's embeddings, and of reranking. What the model cannot is an ApiError.
[[nodiscard]] std::string run_embeddings(const Endpoint& endpoint, const nlohmann::json& body, const ServedModel& model,
                                         Engine& engine);

}  // namespace inferno::serve
