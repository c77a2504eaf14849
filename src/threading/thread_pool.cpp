#include "threading/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/log.h"
#include "base/platform.h"
#include "threading/affinity.h"
#include "threading/protocol.h"
#include "threading/thread_plan.h"

namespace inferno {

namespace {

struct Job {
  ThreadPool::Work fn = nullptr;
  void* context = nullptr;
  int op = 0;
  uint64_t start_ticks = 0;
};

// This thread's number in the running dispatch. A worker of one pool may dispatch on another, so dispatch() restores
// it.
struct Place {
  int ith = 0;
  int nth = 1;
  int op = 0;
};
thread_local Place t_place;

// The counter is synchronized across CPUs, but one of them may read it slightly early.
uint64_t ticks_since(uint64_t start, uint64_t now) {
  return now > start ? now - start : 0;
}

// With more threads than CPUs a spinning thread may hold the CPU that the thread it waits for needs.
constexpr uint32_t kOversubscribedSpins = 20;
WaitPolicy policy_for(const ThreadPoolOptions& options, int threads, int cpus) {
  WaitPolicy policy = options.wait;
  if (threads > cpus) {
    policy.spins = std::min(policy.spins, kOversubscribedSpins);
    policy.contended_spins = std::min(policy.contended_spins, kOversubscribedSpins);
  }
  return policy;
}

}  // namespace

struct ThreadPool::Workers {
  using Protocol = PoolProtocol<SystemPlatform, Job>;

  Workers(int threads, const WaitPolicy& policy)
      : stats(static_cast<size_t>(threads)),
        slots(static_cast<size_t>(threads)),
        protocol(slots.data(), threads - 1, policy, static_cast<uint64_t>(policy.linger_us * ticks_per_microsecond())) {
  }

  void run(int ith) {
    while (const int nth = protocol.wait_for_work(ith)) {
      const uint64_t begin = SystemPlatform::ticks();
      const Job job = protocol.payload();
      t_place = {.ith = ith, .nth = nth, .op = job.op};
      call(job, ith, nth);
      const uint64_t end = SystemPlatform::ticks();
      stats[static_cast<size_t>(ith)].add_work(job.op, ticks_since(job.start_ticks, begin),
                                               ticks_since(job.start_ticks, end));
      protocol.finish();
    }
  }

  void call(const Job& job, int ith, int nth) noexcept {
    try {
      job.fn(ith, nth, job.context);
    } catch (...) {
      // The first to fail writes; the caller reads after the join.
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
    }
  }

  void rethrow_error() {
    if (!failed.load(std::memory_order_relaxed)) return;
    failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::vector<ThreadStats> stats;     // [threads]
  std::vector<Protocol::Slot> slots;  // [threads]
  Protocol protocol;
  alignas(kHotLine) std::atomic<bool> dispatching{false};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::vector<std::thread> threads;  // [threads - 1]
  std::thread::id creator = std::this_thread::get_id();
  std::vector<int> creator_cpus;  // the creator's CPUs before it was pinned; empty = it was not
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options) : uneven_(options.uneven) {
  const int cpus = available_cpu_count();
  int wanted = options.threads > 0 ? options.threads : default_thread_count();
  if (wanted > cpus && !options.allow_oversubscription) {
    log(LogLevel::warn, "{} threads requested, {} CPU{} available: using {}", wanted, cpus, cpus == 1 ? "" : "s", cpus);
    wanted = cpus;
  }
  static_assert(kMaxThreads <= Workers::Protocol::kMaxWorkers);
  wanted = std::min(wanted, kMaxThreads);
  workers_ = std::make_unique<Workers>(wanted, policy_for(options, wanted, cpus));
  workers_->threads.reserve(static_cast<size_t>(wanted));
  const auto cpus_of = [&](int ith) -> const std::vector<int>* {
    return static_cast<size_t>(ith) < options.cpus.size() ? &options.cpus[static_cast<size_t>(ith)] : nullptr;
  };
  {
    const BlockSignals block;
    for (int ith = 1; ith < wanted; ++ith) {
      try {
        workers_->threads.emplace_back([workers = workers_.get(), ith] {
          platform::name_this_thread(fmt::format("inferno-{}", ith).c_str());
          prefer_performance_cores();
          workers->run(ith);
        });
      } catch (const std::system_error& error) {
        log(LogLevel::warn, "only {} of {} threads could be created ({}): using those", ith, wanted, error.what());
        break;
      }
      std::thread& thread = workers_->threads.back();
      if (const auto* list = cpus_of(ith); list && !list->empty() && !pin_thread(thread.native_handle(), *list)) {
        log(LogLevel::warn, "thread {} could not be pinned to its CPUs: it runs where the system puts it", ith);
      }
    }
  }
  threads_ = static_cast<int>(workers_->threads.size()) + 1;
  if (const auto* list = cpus_of(0); list && !list->empty()) {
    workers_->creator_cpus = thread_cpus(pthread_self());
    if (!pin_thread(pthread_self(), *list)) {
      workers_->creator_cpus.clear();
      log(LogLevel::warn, "the calling thread could not be pinned to its CPUs: it runs where the system puts it");
    }
  }
}

ThreadPool::~ThreadPool() {
  workers_->protocol.stop();
  for (std::thread& thread : workers_->threads) thread.join();
  if (!workers_->creator_cpus.empty() && workers_->creator == std::this_thread::get_id()) {
    pin_thread(pthread_self(), workers_->creator_cpus);
  }
}

void ThreadPool::run_alone(Work fn, void* context) {
  workers_->stats[0].add_direct_call(op_);
  fn(0, 1, context);
}

void ThreadPool::dispatch(int n, Work fn, void* context) {
  INFERNO_CHECK(n >= 1);
  Workers& workers = *workers_;
  INFERNO_CHECK(!workers.dispatching.load(std::memory_order_relaxed));
  workers.dispatching.store(true, std::memory_order_relaxed);
  const int nth = std::min(n, threads_);
  const Place outer = t_place;
  t_place = {.ith = 0, .nth = nth, .op = op_};
  // Restores on return and on exception; the joined workers no longer access it.
  struct Leave {
    Workers& workers;
    const Place& outer;
    ~Leave() {
      t_place = outer;
      workers.dispatching.store(false, std::memory_order_relaxed);
    }
  } const leave{workers, outer};
  if (nth == 1) {
    run_alone(fn, context);
    return;
  }
  const Job job{.fn = fn, .context = context, .op = op_, .start_ticks = SystemPlatform::ticks()};
  workers.protocol.publish(nth, job);
  workers.call(job, 0, nth);
  const uint64_t finish = ticks_since(job.start_ticks, SystemPlatform::ticks());
  workers.protocol.wait_completion();
  const uint64_t span = ticks_since(job.start_ticks, SystemPlatform::ticks());
  workers.stats[0].add_dispatch(job.op, finish, span * static_cast<uint64_t>(nth));
  workers.rethrow_error();
}

void ThreadPool::barrier() noexcept {
  barrier(t_place.op);
}

void ThreadPool::barrier(int op) noexcept {
  const Place& place = t_place;
  if (place.nth == 1) return;
  const uint64_t waited = workers_->protocol.barrier(place.ith, place.nth);
  workers_->stats[static_cast<size_t>(place.ith)].add_barrier(op, waited);
}

void ThreadPool::barrier(const SpinHook& hook) noexcept {
  const Place& place = t_place;
  if (place.nth == 1) return;
  const uint64_t waited = workers_->protocol.barrier(place.ith, place.nth, [&] { hook.run(hook.context); });
  workers_->stats[static_cast<size_t>(place.ith)].add_barrier(place.op, waited);
}

void ThreadPool::pause() {
  Workers::Protocol& protocol = workers_->protocol;
  const uint64_t dispatches = protocol.dispatches();
  protocol.set_paused(true);
  while (protocol.parked_workers() < threads_ - 1 && protocol.paused() && protocol.dispatches() == dispatches) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void ThreadPool::resume() {
  workers_->protocol.set_paused(false);
}

PoolStats ThreadPool::stats() const {
  return sum_stats(std::span(workers_->stats).first(static_cast<size_t>(threads_)), ticks_per_microsecond() * 1e-3);
}

void ThreadPool::reset_stats() {
  for (ThreadStats& thread : workers_->stats) thread.reset();
}

namespace {

struct Global {
  std::mutex mutex;
  std::unique_ptr<ThreadPool> pool;
};

Global& global_holder() {
  static Global holder;
  return holder;
}

}  // namespace

ThreadPool& ThreadPool::global() {
  Global& holder = global_holder();
  const std::lock_guard lock(holder.mutex);
  if (!holder.pool) holder.pool = std::make_unique<ThreadPool>();
  return *holder.pool;
}

void ThreadPool::destroy_global() {
  Global& holder = global_holder();
  const std::lock_guard lock(holder.mutex);
  holder.pool.reset();
}

}  // namespace inferno
