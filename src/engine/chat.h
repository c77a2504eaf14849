// Conversations to prompts: the model's own chat template, or one that is named or given.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/prompt_piece.h"
#include "inferno/types.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// The text of the model's own template, or of another (ChatOptions::chat_template). An Error when there is none, naming
// those that are known.
[[nodiscard]] std::string_view chat_template_of(const Tokenizer& tokenizer, std::string_view other);

// Immutable; may be used from several threads at once.
class ChatFormat {
 public:
  // Of that template; an Error when it does not compile.
  [[nodiscard]] static ChatFormat from_tokenizer(const Tokenizer& tokenizer, std::string_view other = {});
  ChatFormat(std::string_view source, std::string_view bos_text, std::string_view eos_text);

  // What to encode. Only what the template itself says is control: nothing that messages, tools or other variables say.
  // An Error when the template refuses the messages.
  [[nodiscard]] std::vector<PromptPiece> render(std::span<const ChatMessage> messages,
                                                const ChatOptions& given = {}) const;
  // The same from JSON in the form of OpenAI's API: an object of variables, of which "messages" is one. "tools" and
  // "documents" are none, "add_generation_prompt" is true unless given.
  [[nodiscard]] std::vector<PromptPiece> render(const nlohmann::ordered_json& variables) const;
  // Whether the template can turn thinking on and off.
  [[nodiscard]] bool has_thinking_switch() const;

 private:
  Template template_;
  std::string bos_text_;
  std::string eos_text_;
};

}  // namespace inferno
