#include "serve/chat_prompt.h"

#include <utility>

#include "api/prompt_ids.h"
#include "engine/chat.h"
#include "engine/prompt.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

bool is_answer(const ChatMessage& message) {
  return message.role == "assistant" && message.tool_calls.empty();
}

// Only the first text begins as a prompt does.
std::vector<int32_t> mixed_tokens(const Tokenizer& tokenizer, std::span<const PromptPart> parts) {
  std::vector<int32_t> all;
  for (const PromptPart& part : parts) {
    std::vector<int32_t> ids = part.ids;
    if (!part.text.empty()) {
      ids = &part == parts.data() ? encode_prompt(tokenizer, part.text)
                                  : tokenizer.encode(part.text, {.parse_special = true, .add_bos = false});
    }
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

}  // namespace

std::string take_prefill(const Fields& fields, Prompt& prompt) {
  auto& [messages, options] = std::get<Prompt::Chat>(prompt.content);
  const std::optional<bool> asked = fields.boolean("continue_final_message");
  const bool opens = fields.boolean("add_generation_prompt").value_or(!asked.value_or(false));
  if (asked.value_or(false) && opens) {
    fail_field("continue_final_message", "and `add_generation_prompt` cannot both be true");
  }
  const bool can = messages.size() > 1 && is_answer(messages.back());
  if (asked.value_or(false) && !can) {
    fail_field("continue_final_message", "needs a last message of the assistant after others");
  }
  if (!can || !asked.value_or(opens)) return {};
  if (is_answer(messages[messages.size() - 2])) {
    fail_field("messages", "end with two of the assistant; only one can be continued");
  }
  std::string text = std::move(messages.back().content);
  messages.pop_back();
  options.add_generation_prompt = true;
  return text;
}

std::vector<PromptPiece> chat_pieces(const Tokenizer& tokenizer, const Prompt::Chat& chat, const std::string& prefill) {
  std::vector<PromptPiece> pieces =
      ChatFormat::from_tokenizer(tokenizer, chat.options.chat_template).render(chat.messages, chat.options);
  if (!prefill.empty()) pieces.push_back({.text = prefill, .control = false});
  return pieces;
}

std::vector<int32_t> prompt_tokens(const Tokenizer* tokenizer, const CompletionRequest& request, size_t index) {
  if (tokenizer != nullptr && index < request.parts.size() && !request.parts[index].empty()) {
    return mixed_tokens(*tokenizer, request.parts[index]);
  }
  const auto* chat = std::get_if<Prompt::Chat>(&request.prompts[index].content);
  if (tokenizer == nullptr || chat == nullptr || request.prefill.empty()) {
    return prompt_ids(tokenizer, request.prompts[index]);
  }
  return tokenizer->encode(chat_pieces(*tokenizer, *chat, request.prefill));
}

}  // namespace inferno::serve
