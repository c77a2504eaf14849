// The APIs that are spoken here: each is a way to ask for completions, to answer, and to say what went wrong.
#pragma once

#include <cstdint>
#include <string_view>

namespace inferno::serve {

enum class Dialect : uint8_t {
  openai_text,      // /v1/completions
  openai_chat,      // /v1/chat/completions
  responses,        // /v1/responses
  native,           // llama-server's /completion
  anthropic,        // /v1/messages
  ollama_generate,  // /api/generate
  ollama_chat,      // /api/chat
};

// Whose messages are put through the chat template.
[[nodiscard]] constexpr bool is_chat(Dialect dialect) {
  return dialect != Dialect::openai_text && dialect != Dialect::native;
}

enum class ErrorForm : uint8_t { openai, anthropic, ollama };

[[nodiscard]] constexpr ErrorForm error_form(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ErrorForm::anthropic;
  return path.starts_with("/api/") ? ErrorForm::ollama : ErrorForm::openai;
}

}  // namespace inferno::serve
