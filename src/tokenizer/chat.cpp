#include "tokenizer/chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {

constexpr std::string_view kImStart = "<|im_start|>";
constexpr std::string_view kImEnd = "<|im_end|>";
constexpr std::string_view kHeaderStart = "<|start_header_id|>";
constexpr std::string_view kHeaderEnd = "<|end_header_id|>";
constexpr std::string_view kEot = "<|eot_id|>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";
// What Llama 3.1's template writes when the caller gives no date.
constexpr std::string_view kDateHeader = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Removes a newline written in a Jinja string as \n or as itself.
bool remove_newline(std::string_view& text) {
  const size_t length = text.substr(0, 2) == "\\n" ? 2 : text.substr(0, 1) == "\n" ? 1 : 0;
  text.remove_prefix(length);
  return length > 0;
}

// The literal between "<|im_start|>system\n" and "<|im_end|>" in the template, when there is one: not the opening of a
// string that goes on with the caller's message.
std::string find_default_system(std::string_view chat_template) {
  constexpr std::string_view kOpening = "<|im_start|>system";
  while (true) {
    const size_t found = chat_template.find(kOpening);
    if (found == std::string_view::npos) return {};
    chat_template.remove_prefix(found + kOpening.size());
    std::string_view literal = chat_template;
    if (!remove_newline(literal)) continue;
    literal = literal.substr(0, literal.find(kImEnd));
    if (!literal.empty() && literal.find_first_of("'\"{}\\") == std::string_view::npos) return std::string(literal);
  }
}

std::string_view strip_newlines(std::string_view text, bool front, bool back) {
  while (front && text.starts_with('\n')) text.remove_prefix(1);
  while (back && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// An answer that holds its thinking: what is before the first </think> and what is after the last.
struct Answer {
  std::string_view thinking;
  std::string_view content;
};

Answer split_thinking(std::string_view content) {
  const size_t end = content.find(kEndThink);
  if (end == std::string_view::npos) return {{}, content};
  std::string_view thinking = strip_newlines(content.substr(0, end), false, true);
  const size_t begin = thinking.rfind(kThink);
  if (begin != std::string_view::npos) thinking.remove_prefix(begin + kThink.size());
  return {strip_newlines(thinking, true, true),
          strip_newlines(content.substr(content.rfind(kEndThink) + kEndThink.size()), true, false)};
}

// Qwen3's template takes a user message of this shape for the result of a tool.
bool looks_like_tool_response(const ChatMessage& message) {
  return message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>");
}

}  // namespace

// Collects pieces; neighbours of one kind become one.
class ChatFormat::Pieces {
 public:
  Pieces& control(std::string_view text) { return append(text, true); }
  Pieces& text(std::string_view text) { return append(text, false); }
  [[nodiscard]] std::vector<PromptPiece> take() { return std::move(pieces_); }

 private:
  Pieces& append(std::string_view text, bool control) {
    if (text.empty()) return *this;
    if (pieces_.empty() || pieces_.back().control != control) pieces_.push_back({.text = {}, .control = control});
    pieces_.back().text += text;
    return *this;
  }
  std::vector<PromptPiece> pieces_;
};

ChatFormat ChatFormat::from_tokenizer(const Tokenizer& tokenizer) {
  return from_template(tokenizer.chat_template(),
                       tokenizer.bos() ? tokenizer.piece(*tokenizer.bos()) : std::string_view());
}

ChatFormat ChatFormat::from_template(std::string_view chat_template, std::string_view bos_text) {
  ChatFormat format;
  if (contains(chat_template, kImStart) && contains(chat_template, kImEnd)) {
    format.form_ = Form::chatml;
    format.default_system_ = find_default_system(chat_template);
    format.thinking_ = contains(chat_template, "enable_thinking") && contains(chat_template, kEndThink);
  } else if (contains(chat_template, kHeaderStart) && contains(chat_template, kEot)) {
    format.form_ = Form::llama3;
    format.bos_text_ = bos_text;
    format.date_header_ = contains(chat_template, "Cutting Knowledge Date");
  } else if (chat_template.empty()) {
    fail("this model has no chat template (tokenizer.chat_template); supported forms: ChatML, Llama-3");
  } else {
    fail("the model's chat template is of a form that is not supported (supported: ChatML, Llama-3): \"{}\"",
         printable(chat_template, 40));
  }
  return format;
}

std::string_view ChatFormat::name() const {
  return form_ == Form::chatml ? "ChatML" : "Llama-3";
}

std::vector<PromptPiece> ChatFormat::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  if (messages.empty()) fail_usage("a chat needs at least one message");
  for (const ChatMessage& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fail_usage("unknown role \"{}\" in a chat message (supported: system, user, assistant)", printable(message.role));
    }
  }
  Pieces out;
  if (form_ == Form::chatml) {
    render_chatml(messages, options, out);
  } else {
    render_llama3(messages, options, out);
  }
  return out.take();
}

void ChatFormat::render_chatml(std::span<const ChatMessage> messages, const ChatOptions& options, Pieces& out) const {
  const auto begin = [&](std::string_view role) { out.control(kImStart).control(role).control("\n"); };
  const auto end = [&] { out.control(kImEnd).control("\n"); };
  if (messages.front().role != "system" && !default_system_.empty()) {
    begin("system");
    out.control(default_system_);
    end();
  }
  // Thinking is kept only in answers after the last question.
  size_t last_question = messages.size() - 1;
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == "user" && !looks_like_tool_response(messages[i])) {
      last_question = i;
      break;
    }
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    begin(message.role);
    if (!thinking_ || message.role != "assistant") {
      out.text(message.content);
    } else {
      const Answer answer = split_thinking(message.content);
      if (i > last_question && (i + 1 == messages.size() || !answer.thinking.empty())) {
        out.control("<think>\n").text(answer.thinking).control("\n</think>\n\n");
        out.text(strip_newlines(answer.content, true, false));
      } else {
        out.text(answer.content);
      }
    }
    end();
  }
  if (options.add_generation_prompt) {
    begin("assistant");
    if (thinking_ && !options.enable_thinking) out.control("<think>\n\n</think>\n\n");
  }
}

void ChatFormat::render_llama3(std::span<const ChatMessage> messages, const ChatOptions& options, Pieces& out) const {
  const auto append_header = [&](std::string_view role) {
    out.control(kHeaderStart).control(role).control(kHeaderEnd).control("\n\n");
  };
  out.control(bos_text_);
  if (date_header_) {
    append_header("system");
    out.control(kDateHeader);
    if (messages.front().role == "system") {
      out.text(trim(messages.front().content));
      messages = messages.subspan(1);
    }
    out.control(kEot);
  }
  for (const ChatMessage& message : messages) {
    append_header(message.role);
    out.text(trim(message.content)).control(kEot);
  }
  if (options.add_generation_prompt) append_header("assistant");
}

}  // namespace inferno
