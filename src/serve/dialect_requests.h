// One parser per API, behind parse_completion(). `request` comes with its dialect and seed.
#pragma once

#include <string_view>

#include "serve/completion_request.h"
#include "serve/json_fields.h"

namespace inferno::serve {

void parse_native(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);
// `body`: the text of the fields.
void parse_anthropic(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                     CompletionRequest& request);
void parse_responses(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request);
void parse_ollama(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                  CompletionRequest& request);

// `lookup` and llama-server's `speculative.n_max`.
void speculation_of(const Fields& fields, CompletionRequest& request);

// The prompt of /v1/messages: system and messages.
[[nodiscard]] Prompt anthropic_prompt(const Fields& fields, std::string_view body, const CompletionLimits& limits);
// Tools in the words of any of the APIs; what they mean for the prompts.
void add_tools(const Fields& fields, std::string_view body, CompletionRequest& request);

}  // namespace inferno::serve
