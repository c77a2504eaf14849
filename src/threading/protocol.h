// The wait, wake and barrier protocol of the thread pool, as a template over its atomics: thread_pool.cpp uses it with
// SystemPlatform, protocol_model_test.cpp with a model checker's.
//
// Who calls what: one dispatcher at a time calls publish() and wait_completion(); worker i (1 ... workers) loops over
// wait_for_work() and finish(); every thread of one dispatch calls barrier(); anyone may call set_paused(). stop() ends
// the workers once no dispatch is running.
//
// Memory orders. A dispatch is published by a read-modify-write of one word, `job_` (generation, flags, active count),
// with release, and picked up with acquire; its end is a release decrement of `remaining_` read with acquire. The
// operations that decide about sleeping are seq_cst, because sleeping needs a store ordered before a load of *another*
// word on both sides: the sleeper announces itself and then looks at the condition, the waker changes the condition and
// then looks for sleepers. With anything weaker both may see the old value, and the wake-up is lost.
//
// No word wraps into a wrong answer: the generation has 46 bits, and nobody can fall two barrier phases behind.
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
  // A worker's own corner: written by it when it parks, by a waker when it is wanted again.
  struct alignas(kHotLine) Slot {
    Atomic<uint32_t> parked{0};
    Word last_run = 0;  // worker's own: the job word of its last dispatch
  };

  // slots[0 ... workers]; slots[0] stands for the dispatcher and is not used.
  PoolProtocol(Slot* slots, int workers, const WaitPolicy& policy, uint64_t linger_ticks)
      : slots_(slots), workers_(workers), policy_(policy), linger_ticks_(linger_ticks) {}

  // Dispatcher: hands the payload to workers 1 ... active-1 and wakes those of them that sleep.
  void publish(int active, const Payload& payload) {
    payload_ = payload;
    remaining_.store(static_cast<uint32_t>(active - 1), std::memory_order_relaxed);
    // An addition, because set_paused() may change the flag in the same word at the same time.
    const Word delta = kGeneration + static_cast<Word>(active) - static_cast<Word>(published_);
    published_ = active;
    job_.fetch_add(delta, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) unpark(active);
  }

  // Dispatcher: returns when every worker of the dispatch has called finish().
  void wait_completion() {
    if (spin_until([&] { return remaining_.load(std::memory_order_acquire) == 0; })) return;
    dispatcher_sleeps_.store(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t left = remaining_.load(std::memory_order_seq_cst);
      if (left == 0) break;
      Platform::sleep_while_equal(remaining_, left);
    }
    dispatcher_sleeps_.store(0, std::memory_order_relaxed);
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
      // Dispatches of other threads do not prolong the linger: a worker that is never included comes to rest.
      for (uint32_t turn = 1; !wanted(word) && (word & kPaused) == 0; ++turn) {
        if (turn % kTurnsPerClock == 0) {
          if (Platform::ticks() - start >= linger_ticks_) break;
          if (turn > policy_.spins) Platform::yield();
        }
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
    const bool last = remaining_.fetch_sub(1, std::memory_order_seq_cst) == 1;
    if (last && dispatcher_sleeps_.load(std::memory_order_seq_cst) != 0) Platform::wake_all(remaining_);
  }

  // Every one of the `active` threads of the running dispatch: returns when all have arrived, and tells how many
  // ticks this thread waited.
  uint64_t barrier(int active) {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(active)) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_seq_cst);
      if (barrier_sleepers_.load(std::memory_order_seq_cst) != 0) Platform::wake_all(phase_);
      return 0;
    }
    const uint64_t start = Platform::ticks();
    if (!spin_until([&] { return phase_.load(std::memory_order_acquire) != phase; })) {
      barrier_sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (phase_.load(std::memory_order_seq_cst) == phase) Platform::sleep_while_equal(phase_, phase);
      barrier_sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    return Platform::ticks() - start;
  }

  // Paused: idle workers park at once. Not paused: they linger; those that sleep are woken. Work arrives either way.
  void set_paused(bool paused) {
    if (paused) {
      job_.fetch_or(kPaused, std::memory_order_seq_cst);
    } else {
      job_.fetch_and(~kPaused, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) != 0) unpark(workers_ + 1);
    }
  }
  [[nodiscard]] bool paused() const { return (job_.load(std::memory_order_relaxed) & kPaused) != 0; }
  [[nodiscard]] uint64_t dispatches() const { return generation(job_.load(std::memory_order_relaxed)); }
  [[nodiscard]] int parked_workers() const { return static_cast<int>(sleepers_.load(std::memory_order_relaxed)); }

  // Sends all workers home, sleeping or not; for when no dispatch runs.
  void stop() {
    job_.fetch_or(kStop, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) unpark(workers_ + 1);
  }

 private:
  // job_: bits 0-15 active count, 16 paused, 17 stop, 18-63 generation.
  static constexpr Word kActiveMask = 0xFFFF;
  static constexpr Word kPaused = Word{1} << 16;
  static constexpr Word kStop = Word{1} << 17;
  static constexpr Word kGeneration = Word{1} << 18;
  // Reading the clock and yielding cost up to 0.3 us; between them an idle worker looks at the word this many times.
  static constexpr uint32_t kTurnsPerClock = 64;

  static int active(Word word) { return static_cast<int>(word & kActiveMask); }
  static uint64_t generation(Word word) { return word / kGeneration; }

  // True when done() held before patience ran out.
  template <typename Condition>
  bool spin_until(Condition done) {
    for (uint32_t turn = 0; turn < policy_.spins; ++turn) {
      if (done()) return true;
      Platform::relax();
    }
    for (uint32_t turn = 0; turn < policy_.yields; ++turn) {
      if (done()) return true;
      Platform::yield();
    }
    return done();
  }

  // Worker: sleeps if the job word is still the one that gave no reason to stay awake.
  void park(Slot& slot, Word word) {
    slot.parked.store(1, std::memory_order_relaxed);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (job_.load(std::memory_order_seq_cst) == word) Platform::sleep_while_equal(slot.parked, 1);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    slot.parked.store(0, std::memory_order_relaxed);
  }

  // Wakes those of workers 1 ... end-1 that sleep. A worker that is just falling asleep is either seen here (its
  // `parked` was stored before it counted itself in sleepers_) or sees the new job word.
  void unpark(int end) {
    for (int i = 1; i < end; ++i) {
      if (slots_[i].parked.load(std::memory_order_relaxed) == 0) continue;
      slots_[i].parked.store(0, std::memory_order_relaxed);
      Platform::wake_all(slots_[i].parked);
    }
  }

  // Read by all, written by the dispatcher; the payload travels on the line that the workers watch anyway.
  alignas(kHotLine) Atomic<Word> job_{0};
  typename Platform::template Plain<Payload> payload_{};
  int published_ = 0;  // dispatcher's own: the active count now in job_
  alignas(kHotLine) Atomic<uint32_t> remaining_{0};
  alignas(kHotLine) Atomic<uint32_t> arrived_{0};
  alignas(kHotLine) Atomic<uint32_t> phase_{0};
  // Written only when somebody sleeps, so they stay in every reader's cache.
  alignas(kHotLine) Atomic<uint32_t> sleepers_{0};
  alignas(kHotLine) Atomic<uint32_t> dispatcher_sleeps_{0};
  alignas(kHotLine) Atomic<uint32_t> barrier_sleepers_{0};
  alignas(kHotLine) Slot* const slots_;
  const int workers_;
  const WaitPolicy policy_;
  const uint64_t linger_ticks_;
};

}  // namespace inferno
