// Endpoints that turn texts into vectors, or pairs of texts into scores: JSON in, JSON out. For workers.
#pragma once

#include <string>

#include "serve/endpoints.h"
#include "serve/worker_job.h"

namespace inferno::serve {

// Of OpenAI's, llama-server's and Ollama's embeddings, and of reranking. What the model cannot is an ApiError.
[[nodiscard]] std::string run_embeddings(const Endpoint& endpoint, const WorkerJob::Question& question);

}  // namespace inferno::serve
