#include "cli/chat_screen.h"

#include <unistd.h>

#include <cstdlib>

#include "base/standard_streams.h"
#include "cli/cli.h"

namespace inferno::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

// https://no-color.org: set, and not empty.
bool wants_colours() {
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (none == nullptr || *none == '\0') && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

ChatScreen::ChatScreen() : terminal_(::isatty(STDOUT_FILENO) == 1), colours_(terminal_ && wants_colours()) {}

void ChatScreen::write(std::string_view text) {
  if (text.empty()) return;
  at_line_start_ = text.ends_with('\n');
  write_stdout(text);
  flush_stdout();
}

void ChatScreen::set_dim(bool dim) {
  if (!colours_ || dim == dim_) return;
  dim_ = dim;
  write_stdout(dim ? kDim : kPlain);
}

void ChatScreen::show_thinking(std::string_view text) {
  if (!terminal_) return;
  set_dim(true);
  if (!in_thinking_) {
    in_thinking_ = true;
    thinking_since_ = std::chrono::steady_clock::now();
    if (fold_thinking) write("thinking ...");
  }
  if (!fold_thinking) write(terminal_text(text));
}

void ChatScreen::end_thinking() {
  if (!in_thinking_) return;
  in_thinking_ = false;
  if (fold_thinking) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - thinking_since_;
    write(fmt::format("\r\x1b[Kthought for {:.1f} s (/think last shows it)\n", took.count()));
  } else {
    write(at_line_start_ ? "\n" : "\n\n");
  }
  set_dim(false);
}

void ChatScreen::show_answer(std::string_view text) {
  end_thinking();
  write(terminal_ ? terminal_text(text) : std::string(text));
}

void ChatScreen::finish_answer() {
  end_thinking();
  if (!at_line_start_) write("\n");
}

void ChatScreen::show(std::string_view text) {
  flush_stdout();
  write_stderr(text);
}

void ChatScreen::write_note(std::string_view text) {
  show(fmt::format("{}[{}]{}\n", colours_ ? kDim : "", text, colours_ ? kPlain : ""));
}

}  // namespace inferno::cli
