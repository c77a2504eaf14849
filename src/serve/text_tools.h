// Endpoints that only turn texts into tokens and back: JSON in, JSON out. For workers.
#pragma once

#include <string>
#include <string_view>

#include "serve/completion_request.h"
#include "serve/endpoints.h"
#include "tokenizer/tokenizer.h"

namespace inferno::serve {

// Of /tokenize, /detokenize, /apply-template and /v1/messages/count_tokens. Null tokenizer: an ApiError.
[[nodiscard]] std::string run_text_tool(Action action, std::string_view body, const CompletionLimits& limits,
                                        const Tokenizer* tokenizer);

}  // namespace inferno::serve
