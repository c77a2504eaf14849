// Chat formats: a list of messages to the text a model was trained to answer.
//
// A model file carries its format as a Jinja template. Templates are not executed: the two families in wide use are
// recognised by their markers, with the variations that matter (a default system message, Qwen3's thinking blocks,
// Llama 3.1's date header). Tool calls are not rendered.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "inferno/types.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

class ChatFormat {
 public:
  // An Error that lists the known forms when the template (tokenizer.chat_template) is missing or of neither form.
  [[nodiscard]] static ChatFormat from_tokenizer(const Tokenizer& tokenizer);
  [[nodiscard]] static ChatFormat from_template(std::string_view chat_template, std::string_view bos_text);

  // What to encode: the form's own marks, the bos text among them where it has one, are control pieces; what messages
  // say is not.
  [[nodiscard]] std::vector<PromptPiece> render(std::span<const ChatMessage> messages,
                                                const ChatOptions& options = {}) const;
  [[nodiscard]] std::string_view name() const;  // "ChatML", "Llama-3"

 private:
  enum class Form { chatml, llama3 };
  class Pieces;
  void render_chatml(std::span<const ChatMessage> messages, const ChatOptions& options, Pieces& out) const;
  void render_llama3(std::span<const ChatMessage> messages, const ChatOptions& options, Pieces& out) const;

  Form form_ = Form::chatml;
  std::string bos_text_;
  std::string default_system_;  // ChatML: rendered when the first message is not a system message; empty: none
  bool thinking_ = false;       // ChatML of Qwen3
  bool date_header_ = false;    // Llama 3.1 and later
};

}  // namespace inferno
