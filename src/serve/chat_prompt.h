// Prompts of requests to tokens: conversations, those too that end with words of the assistant, and texts with token
// ids between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/prompt_piece.h"
#include "inferno/types.h"
#include "serve/completion_request.h"
#include "serve/json_fields.h"
#include "tokenizer/tokenizer.h"

namespace inferno::serve {

// A conversation that ends with a message of the assistant is continued: the answer goes on with it. Takes that message
// away from `prompt` and returns its words; empty: there is none, or `continue_final_message` is false.
[[nodiscard]] std::string take_prefill(const Fields& fields, Prompt& prompt);

// The text of a conversation with the beginning of its answer.
[[nodiscard]] std::vector<PromptPiece> chat_pieces(const Tokenizer& tokenizer, const Prompt::Chat& chat,
                                                   const std::string& prefill);
// Of one of the request's prompts. Null tokenizer: only token ids can be read.
[[nodiscard]] std::vector<int32_t> prompt_tokens(const Tokenizer* tokenizer, const CompletionRequest& request,
                                                 size_t index);

}  // namespace inferno::serve
