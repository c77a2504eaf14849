// Runs inferno on a terminal of its own: types, waits for what is shown, changes the size.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <util.h>
#else
#include <pty.h>
#endif

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/program.h"

namespace inferno::testing {

class Terminal {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  explicit Terminal(std::vector<std::string> args, Environment environment = {}, unsigned short columns = 80) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ == 0) {
      environment.insert(environment.begin(), {"TERM", "xterm"});
      detail::become(std::string(INFERNO_BINARY_DIR) + "/inferno", std::move(args), {.environment = environment});
    }
  }
  ~Terminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) const { (void)!::write(fd_, text.data(), text.size()); }
  void resize(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(fd_, TIOCSWINSZ, &size);
  }
  void signal(int number) const { ::kill(child_, number); }

  // Waits until the text appears after what was waited for before; escape sequences are no part of what is shown.
  // Returns what came before it. A minute is a limit against hanging.
  std::string wait_for(const std::string& text) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      const std::string shown = without_escapes(raw_).substr(seen_);
      if (const size_t at = shown.find(text); at != std::string::npos) {
        seen_ += at + text.size();
        return shown.substr(0, at);
      }
      if (!read_some()) break;
    }
    ADD_FAILURE() << "\"" << text << "\" is not shown; all that was: " << without_escapes(raw_);
    return {};
  }
  // Reads to the end; the exit code, or 128 + signal.
  int finish() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (read_some()) {
      if (std::chrono::steady_clock::now() < limit) continue;
      ADD_FAILURE() << "it does not end; all that was shown: " << without_escapes(raw_);
      ::kill(child_, SIGKILL);
      break;
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] const std::string& raw() const { return raw_; }

 private:
  bool read_some() {
    pollfd input{.fd = fd_, .events = POLLIN, .revents = 0};
    constexpr int kPollMs = 100;
    if (::poll(&input, 1, kPollMs) == 0) return true;
    char chunk[4096];
    const ssize_t n = ::read(fd_, chunk, sizeof chunk);
    if (n > 0) raw_.append(chunk, static_cast<size_t>(n));
    return n > 0;
  }
  static std::string without_escapes(const std::string& raw) {
    std::string text;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '\x1b' && i + 1 < raw.size() && raw[i + 1] == '[') {
        i += 2;
        while (i < raw.size() && (raw[i] < '@' || raw[i] > '~')) ++i;
      } else if (raw[i] != '\r' && raw[i] != '\x1b') {
        text += raw[i];
      }
    }
    return text;
  }

  pid_t child_ = -1;
  int fd_ = -1;
  std::string raw_;
  size_t seen_ = 0;  // of the text without escapes
};

}  // namespace inferno::testing
