// A conversation with a model: what was said, how answers are made, and the commands that change both.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat_screen.h"
#include "inferno/llm.h"

namespace inferno::cli {

struct ChatSetup {
  std::string model;  // its file, for the notes and for /save
  GenerateOptions generate;
  ChatOptions chat;
  bool continues = false;  // no chat model: what is typed is continued, as one text
};

class ChatSession {
 public:
  // Asks whether to do something; an empty one stands for nobody to ask.
  using Confirm = std::function<bool(const std::string& question)>;

  ChatSession(Llm& llm, ChatSetup setup, ChatScreen& screen, Confirm confirm);

  void set_system(std::string text);
  // Shows and keeps the answer. What cannot be answered is an Error, and the conversation is as it was before.
  void ask(std::string text);
  // A line that begins with a slash; false: the conversation is over. A wrong one is a usage Error.
  [[nodiscard]] bool command(std::string_view line);
  [[nodiscard]] const std::vector<ChatMessage>& messages() const { return messages_; }
  // Of the last answer; empty before the first.
  [[nodiscard]] const std::optional<GenerateResult>& last() const { return last_; }

 private:
  // ---- answering (chat_session.cpp)
  // The answer to the last message; false: there is none, and that has been said.
  bool answer();
  // answer(); without one the conversation is `before` again.
  void answer_or_restore(const std::vector<ChatMessage>& before);
  [[nodiscard]] std::vector<int32_t> encode(const std::vector<ChatMessage>& messages) const;
  // The ids of a conversation that leaves room for an answer; offers to drop turns where this one does not.
  [[nodiscard]] std::optional<std::vector<int32_t>> fit();
  // The conversation without its oldest turns, so that half of the context is free where it can be.
  [[nodiscard]] std::vector<ChatMessage> without_oldest(int& dropped) const;
  void explain_end(StopReason reason, bool has_answer);
  [[nodiscard]] bool offer(const std::string& question) const { return confirm_ && confirm_(question); }

  // ---- commands (chat_commands.cpp)
  void undo();
  void regenerate();
  void think(std::string_view argument);
  void set(std::string_view argument);
  void system(std::string_view argument);
  void show_stats();
  void save(std::string_view file) const;
  void load(std::string_view file);
  // Number of questions.
  [[nodiscard]] int turns() const;

  Llm& llm_;
  ChatSetup setup_;
  ChatScreen& screen_;
  Confirm confirm_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> known_ids_;  // of the last prompt and its answer: what the cache holds
  std::optional<GenerateResult> last_;
};

// A conversation as a file of JSON: messages in the form of OpenAI's API. What is not one is an Error.
[[nodiscard]] std::string conversation_json(const std::vector<ChatMessage>& messages, std::string_view model);
[[nodiscard]] std::vector<ChatMessage> parse_conversation(std::string_view json, std::string_view file);

}  // namespace inferno::cli
