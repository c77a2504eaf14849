#include "cli/terminal_input.h"

#include <sys/select.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/signals.h"

namespace inferno::cli {
namespace {

// The rest of a sequence follows at once, also over a slow line; a person who pressed Esc does not.
constexpr int kSequenceMs = 50;
constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";

volatile std::sig_atomic_t resized = 0;
volatile std::sig_atomic_t continued = 0;

void note_signal(int signal) {
  (signal == SIGWINCH ? resized : continued) = 1;
}

wchar_t code_point(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first;
  auto value = static_cast<wchar_t>(first & (0x7F >> sequence.size()));
  for (const char byte : sequence.substr(1)) value = (value << 6) | (static_cast<unsigned char>(byte) & 0x3F);
  return value;
}

// How many bytes the sequence that begins with this one has; 1 for what begins none.
size_t announced_length(char byte) {
  const auto first = static_cast<unsigned char>(byte);
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
}

// As pselect(); a timeout of -1 is none.
int wait_readable(int fd, int timeout_ms, const sigset_t& mask) {
  fd_set input;
  FD_ZERO(&input);
  FD_SET(fd, &input);
  const timespec limit{.tv_sec = 0, .tv_nsec = timeout_ms * 1'000'000L};
  return ::pselect(fd + 1, &input, nullptr, nullptr, timeout_ms < 0 ? nullptr : &limit, &mask);
}

}  // namespace

TerminalInput::TerminalInput(int fd) : fd_(fd) {
  struct sigaction action{};
  action.sa_handler = note_signal;
  ::sigaction(SIGWINCH, &action, nullptr);
  ::sigaction(SIGCONT, &action, nullptr);
  restore_terminal_at_end(fd);
}

TerminalInput::~TerminalInput() {
  (void)std::signal(SIGWINCH, SIG_DFL);
  (void)std::signal(SIGCONT, SIG_DFL);
}

void TerminalInput::begin_line() const {
  write_stderr("\x1b[?2004h");
}

void TerminalInput::end_line() const {
  write_stderr("\x1b[?2004l");
}

TerminalInput::Event TerminalInput::fill(int timeout_ms) {
  // Signals are let in only while waiting, so that none comes between a look at its flag and the wait.
  sigset_t watched, before;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGWINCH, SIGCONT}) sigaddset(&watched, signal);
  ::pthread_sigmask(SIG_BLOCK, &watched, &before);
  Event event = Event::character;
  while (true) {
    if (timeout_ms < 0 && take_interrupt()) {
      event = Event::interrupted;
    } else if (timeout_ms < 0 && resized != 0) {
      resized = 0;
      event = Event::resized;
    } else if (timeout_ms < 0 && continued != 0) {
      continued = 0;
      event = Event::continued;
    } else if (const int ready = wait_readable(fd_, timeout_ms, before); ready > 0) {
      char chunk[1024];
      const ssize_t n = ::read(fd_, chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) event = Event::end;
      if (n > 0) bytes_.append(chunk, static_cast<size_t>(n));
    } else if (ready < 0 && errno == EINTR && timeout_ms < 0) {
      continue;
    } else {
      event = ready < 0 && errno != EINTR ? Event::end : Event::character;  // nothing came in time
    }
    break;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return event;
}

bool TerminalInput::take_sequence(std::string_view sequence) {
  while (bytes_.size() < sequence.size() && sequence.starts_with(bytes_)) {
    const size_t had = bytes_.size();
    if (fill(kSequenceMs) != Event::character || bytes_.size() == had) break;
  }
  if (!bytes_.starts_with(sequence)) return false;
  bytes_.erase(0, sequence.size());
  return true;
}

TerminalInput::Event TerminalInput::decode(wchar_t& character) {
  const size_t wanted = announced_length(bytes_[0]);
  while (bytes_.size() < wanted) {
    const size_t had = bytes_.size();
    if (fill(kSequenceMs) != Event::character || bytes_.size() == had) break;
  }
  const size_t length = utf8_sequence_length(bytes_);
  character = length == 0 ? L'\uFFFD' : code_point(std::string_view(bytes_).substr(0, length));
  bytes_.erase(0, length == 0 ? 1 : length);
  return Event::character;
}

TerminalInput::Event TerminalInput::next(wchar_t& character) {
  while (true) {
    if (bytes_.empty()) {
      const Event event = fill(-1);
      if (event != Event::character) return event;
    }
    if (bytes_[0] == '\x1b') {
      if (take_sequence(pasting_ ? kPasteEnd : kPasteBegin)) {
        pasting_ = !pasting_;
        continue;
      }
      if (!pasting_ && (take_sequence("\x1b\r") || take_sequence("\x1b\n"))) {
        character = kReturnSign;
        return Event::character;
      }
    }
    if (!pasting_) return decode(character);
    if (take_sequence("\r\n") || take_sequence("\r") || take_sequence("\n")) {
      character = kReturnSign;
      return Event::character;
    }
    (void)decode(character);
    if (character == L'\t') character = L' ';
    if (character >= L' ' && character != 0x7F) return Event::character;  // other control characters would be commands
  }
}

}  // namespace inferno::cli
