#include "cli/signals.h"

#include <termios.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "cli/ranks.h"

namespace inferno::cli {
namespace {

std::atomic<bool> watching{false};
std::atomic<bool> interrupted{false};
std::atomic<Llm*> guarded{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<Llm*>::is_always_lock_free);

struct {
  int fd = -1;
  termios state{};
} terminal;

void restore_terminal() noexcept {
  if (terminal.fd < 0) return;
  constexpr char kNoBrackets[] = "\x1b[?2004l";  // around pasted text
  (void)!::write(terminal.fd, kNoBrackets, sizeof kNoBrackets - 1);
  ::tcsetattr(terminal.fd, TCSANOW, &terminal.state);
}

void on_signal(int signal) {
  if (Llm* llm = guarded.load(); signal == SIGINT && llm != nullptr) {
    interrupted.store(true);
    llm->cancel();
    return;
  }
  if (signal == SIGINT && watching.load() && !interrupted.exchange(true)) return;
  if (signal == SIGTERM) tell_dead_rank();
  end_by(signal);
}

}  // namespace

void clean_up_on_signals() noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

const std::atomic<bool>& watch_interrupt() noexcept {
  watching.store(true);
  return interrupted;
}

InterruptGuard::InterruptGuard(Llm& llm) noexcept {
  guarded.store(&llm);
}

InterruptGuard::~InterruptGuard() {
  guarded.store(nullptr);
}

bool take_interrupt() noexcept {
  return interrupted.exchange(false);
}

void restore_terminal_at_end(int fd) noexcept {
  if (::tcgetattr(fd, &terminal.state) == 0) terminal.fd = fd;
}

void end_by(int signal) noexcept {
  restore_terminal();
  remove_temporary_files();
  (void)std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  (void)std::raise(signal);
  (void)::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);  // inside its own handler it is blocked
  ::_exit(128 + signal);
}

}  // namespace inferno::cli
