// What a conversation looks like: answers on standard output, thinking dim or folded, remarks on stderr.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace inferno::cli {

class ChatScreen {
 public:
  ChatScreen();

  // Answers and thinking as they come. Where standard output is no terminal, thinking is left out.
  void show_answer(std::string_view text);
  void show_thinking(std::string_view text);
  void finish_answer();

  // A remark of the program's own, one line.
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    write_note(fmt::format(format, std::forward<Args>(args)...));
  }
  // Several lines of the program's own, as they are.
  void show(std::string_view text);
  [[nodiscard]] bool is_terminal() const { return terminal_; }

  bool fold_thinking = false;  // one line says how long it took

 private:
  void write_note(std::string_view text);
  void write(std::string_view text);
  void set_dim(bool dim);
  void end_thinking();

  bool terminal_;
  bool colours_;
  bool dim_ = false;
  bool in_thinking_ = false;
  bool at_line_start_ = true;
  std::chrono::steady_clock::time_point thinking_since_;
};

// Text of a model, safe for a terminal: control characters other than line breaks and tabs become \xNN.
[[nodiscard]] std::string terminal_text(std::string_view text);

}  // namespace inferno::cli
