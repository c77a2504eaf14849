// A persistent pool of worker threads with sub-microsecond dispatch.
//
// The thread that calls dispatch() is worker 0; the pool owns the other threads, creates them once and joins them when
// it is destroyed. Work is a plain function: fn(ith, nth, context) runs once for every ith in 0 ... nth-1, each on its
// own thread, and dispatch() returns when all have returned. It allocates nothing, takes no lock and, while the workers
// are awake, makes no system call. On a pool of one thread, or for a width of one, it is a direct call.
//
// Waiting threads spin, then yield, then sleep (WaitPolicy). Workers keep spinning for a linger time after their last
// dispatch and then park at 0 % CPU; pause() parks them immediately.
//
// Thread safety: one dispatch at a time; a second one, from another thread or from inside the work, is a programmer
// error and ends in a CHECK. pause(), resume(), stats() may be called from any thread at any time.
//
// Errors: an exception thrown by work reaches the caller of dispatch() after all threads have returned; of several, one
// does. Work that calls barrier() must not throw: the other threads would wait forever.
#pragma once

#include <memory>
#include <vector>

#include "threading/pool_stats.h"
#include "threading/wait.h"

namespace inferno {

struct ThreadPoolOptions {
  // Threads, the caller included; 0 = default_thread_count(). More than the CPUs available is clamped with a warning.
  int threads = 0;
  // Disables that clamp, for tests.
  bool allow_oversubscription = false;
  WaitPolicy wait = {};
  // cpus[i]: the CPUs thread i may run on; empty, or shorter than the pool = not pinned. cpus[0] is for the caller: it
  // is applied to the thread that creates the pool, and undone when that thread destroys the pool.
  std::vector<std::vector<int>> cpus = {};
  // The threads run on CPUs of different speed: chunks should be stolen even with few threads.
  bool uneven = false;
};

// Called in each iteration of a spin wait; must be short.
struct SpinHook {
  void (*run)(void* context) noexcept = nullptr;
  void* context = nullptr;
};

class ThreadPool {
 public:
  using Work = void (*)(int ith, int nth, void* context);

  // When not all threads can be created, the pool has fewer and logs a warning.
  explicit ThreadPool(const ThreadPoolOptions& options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] bool uneven() const { return uneven_; }

  void dispatch(Work fn, void* context) { dispatch(threads_, fn, context); }
  // On the caller and workers 1 ... n-1; n is at least 1 and is clamped to threads().
  void dispatch(int n, Work fn, void* context);

  // Inside work: waits until all threads of this dispatch have arrived; what they wrote before it is visible after it.
  // All of them must call it the same number of times. The wait is charged to `op`, or to the dispatch's op.
  void barrier() noexcept;
  void barrier(int op) noexcept;
  // The same; hook.run (not null) is called while this thread waits, so not at all when it arrives last.
  void barrier(const SpinHook& hook) noexcept;

  // Parks idle workers immediately, now and after every dispatch. Returns when all are parked, or when another thread
  // dispatches or resumes meanwhile. Dispatching to a paused pool works, at the cost of a wake-up.
  void pause();
  // Back to normal; workers are woken and linger.
  void resume();

  // The op that the following dispatches are counted under (0 ... kPoolOps-1); only between dispatches.
  void set_op(int op) { op_ = op; }
  [[nodiscard]] PoolStats stats() const;
  // Only between dispatches.
  void reset_stats();

  // A pool with default options, created on first use and destroyed at exit, for small programs and tests.
  static ThreadPool& global();
  // Destroys it now; nobody may be using it. The next global() creates a new one.
  static void destroy_global();

 private:
  struct Workers;

  void run_alone(Work fn, void* context);

  int threads_ = 1;
  bool uneven_ = false;
  int op_ = 0;
  std::unique_ptr<Workers> workers_;
};

}  // namespace inferno
