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
// `ids` with its beginning as `before` has it, as far as both mean the same bytes and the same added tokens. A model's
// own words are not always split into tokens as an encoder would: the ids of an earlier prompt and its answer are what
// the cache knows.
[[nodiscard]] std::vector<int32_t> keep_ids(const Tokenizer& tokenizer, std::span<const int32_t> before,
                                            std::span<const int32_t> ids);

}  // namespace inferno
