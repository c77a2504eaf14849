// An answer of a conversation taken apart as its text comes: what the model thinks, what it says, the tools it calls.
//
//   inferno::Prompt::Chat chat{messages, {.tools = tools_json}};
//   inferno::ChatAnswer answer = llm.answer(chat);
//   while (!answer.message.tool_calls.empty()) {
//     chat.messages.push_back(answer.message);
//     for (const auto& call : answer.message.tool_calls)
//       chat.messages.push_back({.role = "tool", .content = run(call), .tool_call_id = call.id, .name = call.name});
//     answer = llm.answer(chat);
//   }
//
// For a stream: submit() the conversation, and give the text that comes to the AnswerReader of the same conversation.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inferno/error.h"
#include "inferno/types.h"

namespace inferno {

// A piece of a call: the first one of each has its id and name, all have more of its arguments.
struct ToolCallPiece {
  size_t index = 0;  // of the calls of its answer
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // of its JSON
};

struct AnswerPiece {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ToolCallPiece> calls = {};

  [[nodiscard]] bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};
// False ends the answer.
using AnswerCallback = std::function<bool(const AnswerPiece& piece)>;

// Of one answer, on one thread at a time. Needs no model any more.
class INFERNO_API AnswerReader {
 public:
  ~AnswerReader();
  AnswerReader(AnswerReader&& other) noexcept;
  AnswerReader& operator=(AnswerReader&& other) noexcept;

  // What is certain of the text so far and was not given out yet; the rest is held back until it is.
  [[nodiscard]] AnswerPiece push(std::string_view text);
  // The end: what was held back. Nothing may be pushed after it.
  [[nodiscard]] AnswerPiece finish();
  // All that was given out, as a message of the assistant for the conversation's next turn.
  [[nodiscard]] const ChatMessage& message() const;

  struct Impl;  // the library's own
  explicit AnswerReader(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

struct ChatAnswer {
  ChatMessage message = {};
  GenerateResult result = {};  // the same as text and tokens, and why it ended

  [[nodiscard]] bool calls_tools() const { return !message.tool_calls.empty(); }
};

}  // namespace inferno
