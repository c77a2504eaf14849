// A user's words to the token ids a model begins with.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/chat.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// A text to continue, with the token a text begins with where the model wants one.
[[nodiscard]] std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text);
// Messages in the model's own chat format (or ChatOptions::chat_template), up to where its answer begins. The template
// is compiled for this call: keep a ChatFormat for many.
[[nodiscard]] std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                               const ChatOptions& options = {});

}  // namespace inferno
