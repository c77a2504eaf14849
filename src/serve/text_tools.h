// Endpoints that only turn texts into tokens and back: JSON in, JSON out. For workers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "serve/completion_request.h"
#include "serve/endpoints.h"
#include "tokenizer/tokenizer.h"

namespace inferno::serve {

// `body` is what `parsed` was parsed from. Of /tokenize, /detokenize, /apply-template and those that count tokens. Null
// tokenizer: an ApiError.
[[nodiscard]] std::string run_text_tool(const Endpoint& endpoint, const nlohmann::json& parsed, std::string_view body,
                                        const CompletionLimits& limits, const Tokenizer* tokenizer);

}  // namespace inferno::serve
