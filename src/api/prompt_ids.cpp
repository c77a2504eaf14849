#include "api/prompt_ids.h"

#include "base/error.h"
#include "engine/prompt.h"

namespace inferno {

std::vector<int32_t> prompt_ids(const Tokenizer* tokenizer, const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt.content)) return *ids;
  if (tokenizer == nullptr) fail("this model has no vocabulary, or this build no tokenizers: give the prompt as `ids`");
  if (const auto* text = std::get_if<std::string>(&prompt.content)) return encode_prompt(*tokenizer, *text);
  const auto& chat = std::get<Prompt::Chat>(prompt.content);
  return encode_chat(*tokenizer, chat.messages, chat.options);
}

}  // namespace inferno
