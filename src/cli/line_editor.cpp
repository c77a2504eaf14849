#include "cli/line_editor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/terminal_input.h"

#if INFERNO_LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#endif

namespace inferno::cli {
namespace {

constexpr std::string_view kReturnText = "\u23CE";

#if INFERNO_LIBEDIT
constexpr size_t kMaxEntries = 1000;
constexpr uint64_t kMaxHistoryBytes = uint64_t{16} << 20;

// The latest entries, oldest first. A file that has grown to twice as many is written anew.
std::deque<std::string> read_history(const std::string& file) {
  std::deque<std::string> entries;
  struct stat status{};
  if (file.empty() || ::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return entries;
  if (static_cast<uint64_t>(status.st_size) > kMaxHistoryBytes) return entries;
  std::ifstream in(file);
  size_t lines = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || !is_valid_utf8(line)) continue;
    ++lines;
    entries.push_back(std::move(line));
    if (entries.size() > kMaxEntries) entries.pop_front();
  }
  if (lines < 2 * kMaxEntries) return entries;
  std::ofstream out(file, std::ios::trunc);
  for (const std::string& entry : entries) out << entry << "\n";
  return entries;
}
#endif

void append_history(const std::string& file, std::string_view entry) {
  if (file.empty()) return;
  // Nobody else's business.
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string line = std::string(entry) + "\n";
  (void)!::write(fd, line.data(), line.size());
  ::close(fd);
}

}  // namespace

std::string chat_history_file() {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = environment("XDG_STATE_HOME");
  if (!folder.starts_with('/')) {
    folder = environment("HOME");
    if (folder.empty()) return {};
    folder += "/.local/state";
  }
  folder += "/inferno";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return folder + "/chat_history";
}

std::string fold_lines(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    if (byte == '\n') {
      line += kReturnText;
    } else {
      line += byte;
    }
  }
  return line;
}

std::string unfold_lines(std::string_view line) {
  std::string text;
  while (true) {
    const size_t sign = line.find(kReturnText);
    text += line.substr(0, sign);
    if (sign == std::string_view::npos) return text;
    text += '\n';
    line.remove_prefix(sign + kReturnText.size());
  }
}

#if INFERNO_LIBEDIT

struct LineEditor::Parts {
  explicit Parts(std::string file) : history_file(std::move(file)), input(STDIN_FILENO) {
    // Characters beyond ASCII need a locale that has them; everything else stays as C has it.
    if (std::setlocale(LC_CTYPE, "") == nullptr || std::string_view(::nl_langinfo(CODESET)) != "UTF-8") {
      (void)std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    history = ::history_init();
    editor = ::el_init("inferno", stdin, ::isatty(STDOUT_FILENO) == 1 ? stdout : stderr, stderr);
    HistEvent event{};
    ::history(history, &event, H_SETSIZE, static_cast<int>(kMaxEntries));
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT, &show_prompt);
    ::el_set(editor, EL_GETCFN, &read_character);
    ::el_set(editor, EL_SIGNAL, 0);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, &::history, history);
    ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    for (const std::string& entry : read_history(history_file)) ::history(history, &event, H_ENTER, entry.c_str());
  }
  ~Parts() {
    ::el_end(editor);
    ::history_end(history);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  static Parts& of(EditLine* editor) {
    void* parts = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &parts);
    return *static_cast<Parts*>(parts);
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  // 1: a character; 0: the end; -1 ends the line without one.
  static int read_character(EditLine* editor, wchar_t* character) {
    Parts& self = of(editor);
    while (true) {
      switch (self.input.next(*character)) {
        case TerminalInput::Event::character:
          return 1;
        case TerminalInput::Event::end:
          return 0;
        case TerminalInput::Event::interrupted:
          self.interrupted = true;
          return -1;
        case TerminalInput::Event::resized:
          ::el_resize(editor);
          break;
        case TerminalInput::Event::continued:  // the shell had the terminal meanwhile
          ::el_set(editor, EL_PREP_TERM, 1);
          ::el_set(editor, EL_REFRESH);
          break;
      }
    }
  }

  std::string history_file;
  TerminalInput input;
  std::string prompt;
  bool interrupted = false;
  History* history = nullptr;
  EditLine* editor = nullptr;
};

LineEditor::Result LineEditor::read(const std::string& prompt, std::string& line) {
  parts_->prompt = prompt;
  parts_->interrupted = false;
  parts_->input.begin_line();
  ::el_set(parts_->editor, EL_PREP_TERM,
           1);  // before the prompt, or keys pressed at once would go to the terminal's own
  int length = 0;
  const char* text = ::el_gets(parts_->editor, &length);
  parts_->input.end_line();
  if (text == nullptr || length <= 0) {
    write_stderr("\n");
    return parts_->interrupted ? Result::interrupted : Result::end;
  }
  std::string_view typed(text, static_cast<size_t>(length));
  while (typed.ends_with('\n') || typed.ends_with('\r')) typed.remove_suffix(1);
  line = unfold_lines(typed);
  return Result::line;
}

void LineEditor::remember(std::string_view entry) {
  const std::string line = fold_lines(entry);
  HistEvent event{};
  ::history(parts_->history, &event, H_ENTER, line.c_str());
  append_history(parts_->history_file, line);
}

#else

struct LineEditor::Parts {
  explicit Parts(std::string file) : history_file(std::move(file)) {}
  std::string history_file;
};

LineEditor::Result LineEditor::read(const std::string& prompt, std::string& line) {
  write_stderr(prompt);
  line.clear();
  for (int byte; (byte = std::getchar()) != EOF;) {
    if (byte == '\n') return Result::line;
    line += static_cast<char>(byte);
  }
  write_stderr("\n");
  return line.empty() ? Result::end : Result::line;
}

void LineEditor::remember(std::string_view entry) {
  append_history(parts_->history_file, fold_lines(entry));
}

#endif

LineEditor::LineEditor(std::string history_file) : parts_(std::make_unique<Parts>(std::move(history_file))) {}
LineEditor::~LineEditor() = default;

}  // namespace inferno::cli
