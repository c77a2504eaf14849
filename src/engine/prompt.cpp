#include "engine/prompt.h"

namespace inferno {

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.parse_special = true, .add_bos = tokenizer.wants_bos()});
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                 const ChatOptions& options) {
  return tokenizer.encode(ChatFormat::from_tokenizer(tokenizer, options.chat_template).render(messages, options));
}

}  // namespace inferno
