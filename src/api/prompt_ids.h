// A prompt of any kind to the token ids a model begins with.
#pragma once

#include <cstdint>
#include <vector>

#include "inferno/types.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Text and messages without a tokenizer are an Error.
[[nodiscard]] std::vector<int32_t> prompt_ids(const Tokenizer* tokenizer, const Prompt& prompt);

}  // namespace inferno
