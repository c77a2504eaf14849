// Code that asynchronous signals of the program must not interrupt.
#pragma once

#include <pthread.h>

#include <csignal>

namespace inferno {

// While it exists, asynchronous signals wait for this thread, and threads that it makes leave them to the program's own
// threads for good. Synchronous ones (a fault in a mapped file) must stay deliverable to the thread that caused them.
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
