// The wait, wake and barrier protocol of the thread pool, as a template over its atomics: thread_pool.cpp uses it with
// SystemPlatform, protocol_model_test.cpp with a model checker's.
//
// Who calls what: one dispatcher at a time calls publish() and wait_completion(); worker i (1 ... workers) loops over
// wait_for_work() and finish(); every thread of one dispatch calls barrier(); anyone may call set_paused(). stop() ends
// the workers once no dispatch is running.
//
// Memory orders. A lost wake-up needs two words: the sleeper announces itself in one and checks the condition in the
// other, the waker does the reverse, and both see old values unless all four accesses are seq_cst. Here each condition
// and its "somebody sleeps" flag share one word (job_, remaining_, phase_) and change only by read-modify-writes of it,
// which have a single modification order. So release when publishing and acquire when consuming are enough everywhere,
// and the operation that publishes also tells the waker whether to call the kernel.
//
// Wrap-around: a worker mistakes new work for old only if it misses exactly 2^40 dispatches in a row. Barrier phases
// may wrap freely, because no thread can be two phases late.
#pragma once

#include <cstdint>

#include "threading/wait.h"

namespace inferno {

template <typename Platform, typename Payload>
class PoolProtocol {
  template <typename T>
  using Atomic = typename Platform::template Atomic<T>;
  using Word = uint64_t;

 public:
  // The job word counts up to this many workers.
  static constexpr int kMaxWorkers = (1 << 11) - 1;

  // Per-worker state: `parked` is set by the worker when it parks and cleared by the waker.
  struct alignas(Platform::kLine) Slot {
    Atomic<uint32_t> parked{0};
    // Accessed by the worker alone:
    Word last_run = 0;         // the job word of its last dispatch
    uint64_t preemptions = 0;  // at the last check
    uint32_t contended = 0;    // number of further exhausted spins for which the CPU counts as contended
  };

  // slots[0 ... workers]; slots[0] is the dispatcher's.
  PoolProtocol(Slot* slots, int workers, const WaitPolicy& policy, uint64_t linger_ticks)
      : slots_(slots), workers_(workers), policy_(policy), linger_ticks_(linger_ticks) {}

  // Dispatcher: hands the payload to workers 1 ... active-1 and wakes those of them that sleep.
  void publish(int active, const Payload& payload) {
    payload_ = payload;
    remaining_.store(static_cast<uint32_t>(active - 1), std::memory_order_relaxed);
    // An addition, because other fields of the word may change concurrently.
    const Word delta = kGeneration + static_cast<Word>(active) - static_cast<Word>(published_);
    published_ = active;
    // Acquire is for the sleepers' `parked` words.
    const Word before = job_.fetch_add(delta, std::memory_order_acq_rel);
    if (sleepers(before) != 0) unpark(active);
  }

  // Dispatcher: returns when every worker of the dispatch has called finish().
  void wait_completion() {
    if (spin_until(slots_[0], [&] { return remaining_.load(std::memory_order_acquire) == 0; })) return;
    uint32_t left = remaining_.fetch_or(kSleeping, std::memory_order_acquire) | kSleeping;
    while (left != kSleeping) {
      Platform::sleep_while_equal(remaining_, left);
      left = remaining_.load(std::memory_order_acquire);
    }
  }

  // Worker: waits for a dispatch that includes it; returns its width, or 0 after stop().
  int wait_for_work(int ith) {
    Slot& slot = slots_[ith];
    const auto wanted = [&](Word word) {
      return (word & kStop) != 0 || (ith < active(word) && generation(word) != generation(slot.last_run));
    };
    for (;;) {
      Word word = job_.load(std::memory_order_acquire);
      const uint64_t start = Platform::ticks();
      // Dispatches that do not include this worker do not extend the linger: a worker that is never needed parks.
      for (uint32_t poll = 1; !wanted(word) && (word & kPaused) == 0; ++poll) {
        if (poll % Platform::kPollsPerClockRead == 0 && Platform::ticks() - start >= linger_ticks_) break;
        if (poll % (policy_.spins + 1) == 0 && cpu_is_contended(slot)) break;
        Platform::relax();
        word = job_.load(std::memory_order_acquire);
      }
      if (!wanted(word)) {
        park(slot, word);
        continue;
      }
      slot.last_run = word;
      return (word & kStop) != 0 ? 0 : active(word);
    }
  }

  // Worker: the payload of the dispatch that wait_for_work() returned; valid until finish().
  [[nodiscard]] const auto& payload() const { return payload_; }

  // Worker: its share of the dispatch is done.
  void finish() {
    if (remaining_.fetch_sub(1, std::memory_order_release) == (1 | kSleeping)) Platform::wake_all(remaining_);
  }

  // Called by each of the `active` threads of the running dispatch: returns when all have arrived. Returns the number
  // of ticks this thread waited.
  uint64_t barrier(int ith, int active) {
    return barrier(ith, active, [] {});
  }
  // The same; calls hook() in each iteration of the spin wait.
  template <typename Hook>
  uint64_t barrier(int ith, int active, Hook hook) {
    // Cannot advance before this thread has arrived, and the last advance is ordered before this dispatch or phase.
    const uint32_t phase = phase_.load(std::memory_order_relaxed) & ~kPhaseSleeping;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(active)) {
      arrived_.store(0, std::memory_order_relaxed);
      const uint32_t before = phase_.exchange(phase + kPhase, std::memory_order_release);
      if ((before & kPhaseSleeping) != 0) Platform::wake_all(phase_);
      return 0;
    }
    const uint64_t start = Platform::ticks();
    const auto passed = [&](uint32_t word) { return (word & ~kPhaseSleeping) != phase; };
    const auto over = [&] {
      if (passed(phase_.load(std::memory_order_acquire))) return true;
      hook();
      return false;
    };
    if (!spin_until(slots_[ith], over)) {
      // If the phase has just ended, the flag is set on the next one, where it costs one needless wake-up call.
      uint32_t word = phase_.fetch_or(kPhaseSleeping, std::memory_order_acquire);
      while (!passed(word)) {
        Platform::sleep_while_equal(phase_, phase | kPhaseSleeping);
        word = phase_.load(std::memory_order_acquire);
      }
    }
    return Platform::ticks() - start;
  }

  // Paused: idle workers park immediately. Not paused: they linger, and sleeping ones are woken. Dispatches work in
  // both states.
  void set_paused(bool paused) {
    if (paused) {
      job_.fetch_or(kPaused, std::memory_order_relaxed);
    } else {
      const Word before = job_.fetch_and(~kPaused, std::memory_order_acq_rel);
      if (sleepers(before) != 0) unpark(workers_ + 1);
    }
  }
  [[nodiscard]] bool paused() const { return (job_.load(std::memory_order_relaxed) & kPaused) != 0; }
  [[nodiscard]] uint64_t dispatches() const { return generation(job_.load(std::memory_order_relaxed)); }
  [[nodiscard]] int parked_workers() const { return sleepers(job_.load(std::memory_order_relaxed)); }

  // Makes all workers leave wait_for_work(), sleeping or not; only while no dispatch is running.
  void stop() {
    const Word before = job_.fetch_or(kStop, std::memory_order_acq_rel);
    if (sleepers(before) != 0) unpark(workers_ + 1);
  }

 private:
  // job_: bits 0-10 active count, 11-21 sleeping workers, 22 paused, 23 stop, 24-63 generation.
  static constexpr Word kActiveMask = kMaxWorkers;
  static constexpr Word kSleeper = Word{1} << 11;
  static constexpr Word kSleepersMask = kActiveMask * kSleeper;
  static constexpr Word kPaused = Word{1} << 22;
  static constexpr Word kStop = Word{1} << 23;
  static constexpr Word kGeneration = Word{1} << 24;
  // A few milliseconds' worth of short waits, about a time slice: a busy process preempts again within it.
  static constexpr uint32_t kContendedWaits = 256;
  // remaining_: the count, and whether the dispatcher sleeps.
  static constexpr uint32_t kSleeping = uint32_t{1} << 31;
  // phase_: bit 0 whether anybody sleeps, above it the phase.
  static constexpr uint32_t kPhaseSleeping = 1;
  static constexpr uint32_t kPhase = 2;

  static int active(Word word) { return static_cast<int>(word & kActiveMask); }
  static int sleepers(Word word) { return static_cast<int>((word & kSleepersMask) / kSleeper); }
  static uint64_t generation(Word word) { return word / kGeneration; }

  // Called by a thread that is about to give up its CPU anyway, so the cost does not matter.
  bool cpu_is_contended(Slot& slot) {
    const uint64_t preemptions = Platform::preemptions();
    if (preemptions != slot.preemptions) {
      slot.preemptions = preemptions;
      slot.contended = kContendedWaits;
    } else if (slot.contended > 0) {
      --slot.contended;
    }
    return slot.contended > 0;
  }

  // True when done() held before spins and yields ran out.
  template <typename Condition>
  bool spin_until(Slot& slot, Condition done) {
    const uint32_t spins = slot.contended > 0 ? policy_.contended_spins : policy_.spins;
    for (uint32_t i = 0; i < spins; ++i) {
      if (done()) return true;
      Platform::relax();
    }
    cpu_is_contended(slot);
    for (uint32_t i = 0; i < policy_.yields; ++i) {
      if (done()) return true;
      Platform::yield();
    }
    return false;
  }

  // Worker: sleeps, unless the job word has changed since it was found to hold no work.
  void park(Slot& slot, Word word) {
    slot.parked.store(1, std::memory_order_relaxed);
    const Word now = job_.fetch_add(kSleeper, std::memory_order_release);
    if (((now ^ word) & ~kSleepersMask) == 0) Platform::sleep_while_equal(slot.parked, 1);
    job_.fetch_sub(kSleeper, std::memory_order_relaxed);
    slot.parked.store(0, std::memory_order_relaxed);
  }

  // Wakes those of workers 1 ... end-1 that sleep, after a change of the job word that showed sleepers. A worker that
  // is just falling asleep counted itself either before that change, then its `parked` is visible here, or after it,
  // then it saw the change.
  void unpark(int end) {
    for (int i = 1; i < end; ++i) {
      if (slots_[i].parked.load(std::memory_order_relaxed) == 0) continue;
      slots_[i].parked.store(0, std::memory_order_relaxed);
      Platform::wake_all(slots_[i].parked);
    }
  }

  // Polled by the workers; the payload is on the same line. published_ is the active count now in job_, accessed by the
  // dispatcher alone.
  alignas(Platform::kLine) Atomic<Word> job_{0};
  typename Platform::template Plain<Payload> payload_{};
  int published_ = 0;
  alignas(Platform::kLine) Atomic<uint32_t> remaining_{0};
  alignas(Platform::kLine) Atomic<uint32_t> arrived_{0};
  alignas(Platform::kLine) Atomic<uint32_t> phase_{0};
  alignas(Platform::kLine) Slot* const slots_;
  const int workers_;
  const WaitPolicy policy_;
  const uint64_t linger_ticks_;
};

}  // namespace inferno
