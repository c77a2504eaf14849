// The pool's wait, wake and barrier protocol under a model checker (relacy), for tests: simulated atomics and threads
// for protocol.h, the models, and check(). The checker explores all interleavings, or many random ones, and
// reports deadlocks (lost wake-ups), data races on plain data and failed assertions, under the C++ memory model.
//
// Include this header last: relacy redefines keywords.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>

#include "threading/protocol.h"
// After everything else, because of its macros.
#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef assert
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace inferno::model {

// Bugs that can be planted, to see that the checker finds them.
enum class Plant {
  none,
  split_announcement,  // a sleeper checks the condition before it announces itself: the lost wake-up
  relaxed_only,        // publication without release and acquire
};

// Where the simulated scheduler may switch threads.
enum class Switches {
  every_access,
  // Not at relaxed loads and stores. In the barrier these concern words that no other thread touches at that moment
  // (arrived_ between the last arrival and the next phase, phase_ before this thread has arrived), so a switch there
  // only repeats schedules, about six times for each phase.
  ordered_accesses,
};

// The interface of std::atomic over a simulated one. The simulated futex knows only int.
template <typename T, Plant kPlant, Switches kSwitches>
class ModelAtomic {
 public:
  using Stored = std::conditional_t<sizeof(T) == sizeof(int), int, T>;
  ModelAtomic(T initial) : value(static_cast<Stored>(initial)) {}
  T load(std::memory_order order) const {
    const MaybeSwitch guard(order);
    return static_cast<T>(value.load(convert(order), $));
  }
  void store(T next, std::memory_order order) {
    const MaybeSwitch guard(order);
    value.store(static_cast<Stored>(next), convert(order), $);
  }
  T exchange(T next, std::memory_order order) {
    return static_cast<T>(value.exchange(static_cast<Stored>(next), convert(order), $));
  }
  T fetch_add(T amount, std::memory_order order) {
    return announce([&] { return value.fetch_add(static_cast<Stored>(amount), convert(order), $); });
  }
  T fetch_or(T bits, std::memory_order order) {
    return announce([&] { return value.fetch_or(static_cast<Stored>(bits), convert(order), $); });
  }
  T fetch_sub(T amount, std::memory_order order) {
    return static_cast<T>(value.fetch_sub(static_cast<Stored>(amount), convert(order), $));
  }
  T fetch_and(T bits, std::memory_order order) {
    return static_cast<T>(value.fetch_and(static_cast<Stored>(bits), convert(order), $));
  }

  rl::atomic<Stored> value;

 private:
  struct MaybeSwitch {
    explicit MaybeSwitch(std::memory_order order)
        : skip(kSwitches == Switches::ordered_accesses && order == std::memory_order_relaxed) {
      if (skip) rl::ctx().disable_preemption();
    }
    ~MaybeSwitch() {
      if (skip) rl::ctx().enable_preemption();
    }
    MaybeSwitch(const MaybeSwitch&) = delete;
    MaybeSwitch& operator=(const MaybeSwitch&) = delete;
    const bool skip;
  };

  template <typename Change>
  T announce(Change change) {
    if constexpr (kPlant == Plant::split_announcement) {
      const Stored before = value.load(rl::mo_seq_cst, $);
      change();
      return static_cast<T>(before);
    } else {
      return static_cast<T>(change());
    }
  }

  static rl::memory_order convert(std::memory_order order) {
    if (kPlant == Plant::relaxed_only) return rl::mo_relaxed;
    switch (order) {
      case std::memory_order_relaxed:
        return rl::mo_relaxed;
      case std::memory_order_acquire:
        return rl::mo_acquire;
      case std::memory_order_release:
        return rl::mo_release;
      case std::memory_order_acq_rel:
        return rl::mo_acq_rel;
      default:
        return rl::mo_seq_cst;
    }
  }
};

// Plain data whose unordered accesses are reported as races.
template <typename T>
struct ModelPlain {
  ModelPlain() { value($) = T{}; }
  ModelPlain& operator=(T next) {
    value($) = next;
    return *this;
  }
  operator T() const { return value($); }
  rl::var<T> value;
};

template <Plant kPlant = Plant::none, Switches kSwitches = Switches::every_access>
struct ModelPlatform {
  static constexpr size_t kLine = alignof(std::max_align_t);
  static constexpr uint32_t kPollsPerClockRead = 1;
  template <typename T>
  using Atomic = ModelAtomic<T, kPlant, kSwitches>;
  template <typename T>
  using Plain = ModelPlain<T>;
  static void relax() { rl::yield(1, $); }
  static void yield() { rl::yield(1, $); }
  static uint64_t ticks() { return 0; }
  static uint64_t preemptions() { return 0; }
  // Like the kernel: comparing the word and falling asleep are one atomic step, ordered by a lock against wake_all().
  static void sleep_while_equal(Atomic<uint32_t>& word, uint32_t expected) {
    rl::context& context = rl::ctx();
    context.sched();
    context.atomic_thread_fence_seq_cst();
    {
      const rl::preemption_disabler no_switch(context);
      if (word.value.load(rl::mo_acquire, $) != static_cast<int>(expected)) return;
    }
    word.value.wait(context, false, false, $);
  }
  static void wake_all(Atomic<uint32_t>& word) {
    rl::rl_futex(&word.value, rl::RL_FUTEX_WAKE, 1 << 20, nullptr, nullptr, 0, $);
  }
};

// Every wait sleeps immediately, which is where the bugs can be.
inline constexpr WaitPolicy kSleepAtOnce{.spins = 0, .contended_spins = 0, .yields = 0, .linger_us = 0};

template <int kThreads, typename Platform>
struct ModelPool {
  using Protocol = PoolProtocol<Platform, int>;
  typename Protocol::Slot slots[kThreads];
  Protocol protocol{slots, kThreads - 1, kSleepAtOnce, 0};
};

// kThreads threads cross kPhases barriers; each writes a plain cell before, and reads the next thread's after.
template <int kThreads, int kPhases, typename Platform = ModelPlatform<Plant::none, Switches::ordered_accesses>>
struct BarrierModel : rl::test_suite<BarrierModel<kThreads, kPhases, Platform>, kThreads> {
  ModelPool<kThreads, Platform> pool;
  ModelPlain<int> cells[kThreads][2];  // of odd and even phases: the next thread may be one phase ahead

  void thread(unsigned ith) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      cells[ith][phase % 2] = phase;
      pool.protocol.barrier(static_cast<int>(ith), kThreads);
      RL_ASSERT(cells[(ith + 1) % kThreads][phase % 2] == phase);
    }
  }
};

// One dispatcher and one worker, kDispatches dispatches without barrier.
template <int kDispatches, typename Platform = ModelPlatform<>>
struct HandoffModel : rl::test_suite<HandoffModel<kDispatches, Platform>, 2> {
  ModelPool<2, Platform> pool;
  ModelPlain<int> result;

  void thread(unsigned ith) {
    for (int dispatch = 1; dispatch <= kDispatches; ++dispatch) {
      if (ith == 0) {
        pool.protocol.publish(2, dispatch);
        pool.protocol.wait_completion();
        RL_ASSERT(result == dispatch);
      } else {
        RL_ASSERT(pool.protocol.wait_for_work(1) == 2);
        result = static_cast<int>(pool.protocol.payload());
        pool.protocol.finish();
      }
    }
  }
};

// The whole life of a pool: kDispatches dispatches, alternately of all threads and of one less, each with kPhases
// barriers, then stop(). With kPauses one more thread pauses and resumes the pool meanwhile.
template <int kThreads, int kDispatches, int kPhases, bool kPauses = false, typename Platform = ModelPlatform<>>
struct PoolModel
    : rl::test_suite<PoolModel<kThreads, kDispatches, kPhases, kPauses, Platform>, kThreads + (kPauses ? 1 : 0)> {
  ModelPool<kThreads, Platform> pool;
  ModelPlain<int> cells[kThreads][2];

  static int width(int dispatch) { return kThreads > 2 && dispatch % 2 == 0 ? kThreads - 1 : kThreads; }

  void work(int ith, int nth, int dispatch) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      cells[ith][phase % 2] = dispatch * 100 + phase;
      pool.protocol.barrier(ith, nth);
      RL_ASSERT(cells[(ith + 1) % nth][phase % 2] == dispatch * 100 + phase);
    }
    if (kPhases == 0) cells[ith][0] = dispatch * 100;
  }

  void thread(unsigned index) {
    const int ith = static_cast<int>(index);
    if (ith == kThreads) {
      pool.protocol.set_paused(true);
      pool.protocol.set_paused(false);
    } else if (ith > 0) {
      while (const int nth = pool.protocol.wait_for_work(ith)) {
        const int dispatch = pool.protocol.payload();
        RL_ASSERT(nth == width(dispatch));
        work(ith, nth, dispatch);
        pool.protocol.finish();
      }
    } else {
      for (int dispatch = 1; dispatch <= kDispatches; ++dispatch) {
        const int nth = width(dispatch);
        pool.protocol.publish(nth, dispatch);
        work(0, nth, dispatch);
        pool.protocol.wait_completion();
        for (int i = 0; i < nth; ++i) RL_ASSERT(cells[i][kPhases % 2] == dispatch * 100 + kPhases);
      }
      pool.protocol.stop();
    }
  }
};

struct Verdict {
  std::string result;  // "SUCCESS", "DEADLOCK", "DATA RACE", ...
  uint64_t schedules = 0;
};

// How the search of a full tree of schedules begins: its first choice, of two threads, already fixed to the second one.
// The checker writes and reads such states itself; the numbers are: the first iteration, the number of choices, and for
// each choice the number of alternatives, the one chosen, and its kind.
inline constexpr const char* kSecondThreadFirst = "1 1 2 1 0";
static_assert(rl::sched_type_sched == 0);

// bound: for sched_bound, the number of preemptions of a runnable thread. random_schedules: for sched_random.
template <typename Model>
Verdict check(rl::scheduler_type_e search, uint64_t random_schedules = 0, unsigned bound = 0, const char* begin = "") {
  rl::test_params params;
  params.initial_state = begin;
  std::ostream quiet(nullptr);
  params.output_stream = &quiet;
  params.progress_stream = &quiet;
  params.search_type = search;
  params.iteration_count = random_schedules;
  params.context_bound = bound;
  params.execution_depth_limit = 4000;
  rl::simulate<Model>(params);
  return {rl::test_result_str(params.test_result), params.stop_iteration};
}

// Every schedule of two threads that do the same: explores those that begin with the second thread, because the
// others are the same with the threads exchanged.
template <typename Model>
Verdict check_alike_threads() {
  return check<Model>(rl::sched_full, 0, 0, kSecondThreadFirst);
}

}  // namespace inferno::model
