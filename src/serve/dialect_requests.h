// One parser per API, behind parse_completion(). `request` comes with its dialect and seed.
#pragma once

#include "serve/completion_request.h"
#include "serve/json_fields.h"

namespace inferno::serve {

void parse_native(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);
void parse_anthropic(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);
void parse_responses(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);
void parse_ollama(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);

// `lookup` and llama-server's `speculative.n_max`.
void speculation_of(const Fields& fields, CompletionRequest& request);

// The prompt of /v1/messages: system and messages.
[[nodiscard]] Prompt anthropic_prompt(const Fields& fields, const CompletionLimits& limits);

}  // namespace inferno::serve
