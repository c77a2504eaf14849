// Lines typed on a terminal: editing and history by libedit where the build has it, plain lines otherwise.
//
// A line may hold line breaks: they are shown, and stored in the history, as a return sign. Alt-Enter and pasted text
// make them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace inferno::cli {

class LineEditor {
 public:
  // The history is read from the file now and appended to by remember(); empty: none is kept. A file that cannot be
  // read or written is no reason not to talk.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Result {
    line,
    end,          // Ctrl-D, or the terminal is gone
    interrupted,  // Ctrl-C: what was typed is dropped
  };
  // Without the line's own end.
  Result read(const std::string& prompt, std::string& line);
  void remember(std::string_view entry);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// $XDG_STATE_HOME/inferno/chat_history, ~/.local/state when that is not set; empty when there is no home. Makes the
// folder.
[[nodiscard]] std::string chat_history_file();

// Line breaks as one sign, and back: one entry is one line of the history file.
[[nodiscard]] std::string fold_lines(std::string_view text);
[[nodiscard]] std::string unfold_lines(std::string_view line);

}  // namespace inferno::cli
