// Characters from a terminal in raw mode: UTF-8, pasted text, and the signals that matter while a line is typed.
#pragma once

#include <cstddef>
#include <string>

namespace inferno::cli {

inline constexpr wchar_t kReturnSign = L'\u23CE';

// A terminal between lines is the shell's or the model's: everything is put back at the end of its life.
class TerminalInput {
 public:
  explicit TerminalInput(int fd);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  enum class Event { character, end, interrupted, resized, continued };
  // Waits for it. Line breaks inside of pasted text, and Alt-Enter, come as kReturnSign.
  Event next(wchar_t& character);

  // Around the typing of a line: pasted text comes in brackets.
  void begin_line() const;
  void end_line() const;

 private:
  // Waits for bytes; a timeout of -1 waits for ever, also for signals. `character` means that there are some.
  Event fill(int timeout_ms);
  // Whether the bytes that came begin with the sequence, waiting a little for the rest of it.
  bool take_sequence(std::string_view sequence);
  Event decode(wchar_t& character);

  int fd_;
  std::string bytes_;  // read and not yet decoded
  bool pasting_ = false;
};

}  // namespace inferno::cli
