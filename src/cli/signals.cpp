#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

#include "base/file.h"

namespace inferno::cli {
namespace {

std::atomic<bool> watching{false};
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (signal == SIGINT && watching.load() && !interrupted.exchange(true)) return;
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

void end_by(int signal) noexcept {
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
