// Threads of the library handle no signals of the program.
#pragma once

#include <pthread.h>

#include <csignal>

namespace inferno {

// While it exists, threads that are made leave asynchronous signals to the program's own threads. Synchronous ones (a
// fault in a mapped file) must stay deliverable to the thread that caused them.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t set;
    sigfillset(&set);
    for (const int signal : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&set, signal);
    pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace inferno
