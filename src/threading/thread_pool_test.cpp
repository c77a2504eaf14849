#include "threading/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

namespace inferno {
namespace {

ThreadPoolOptions threads_without_clamp(int threads) {
  return {.threads = threads, .allow_oversubscription = true};
}

// Calls a lambda (ith, nth) on the pool.
template <typename Fn>
void run(ThreadPool& pool, int width, Fn fn) {
  pool.dispatch(width, [](int ith, int nth, void* context) { (*static_cast<Fn*>(context))(ith, nth); }, &fn);
}

// Many-thread tests run at the widths the sanitizer builds are asked for.
class EveryWidth : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, EveryWidth, testing::Values(1, 2, 4, 16));

TEST_P(EveryWidth, EachIndexRunsExactlyOnceAndTheCallerIsWorkerZero) {
  ThreadPool pool(threads_without_clamp(GetParam()));
  ASSERT_EQ(pool.threads(), GetParam());
  std::array<int, 16> calls{};
  std::thread::id zero;
  for (int round = 1; round <= 100; ++round) {
    run(pool, pool.threads(), [&](int ith, int nth) {
      ASSERT_EQ(nth, pool.threads());
      ++calls[static_cast<size_t>(ith)];
      if (ith == 0) zero = std::this_thread::get_id();
    });
    for (int i = 0; i < pool.threads(); ++i) ASSERT_EQ(calls[static_cast<size_t>(i)], round);
  }
  EXPECT_EQ(zero, std::this_thread::get_id());
}

TEST_P(EveryWidth, BarrierSeparatesPhases) {
  ThreadPool pool(threads_without_clamp(GetParam()));
  const int nth = pool.threads();
  std::array<int, 16> value{};  // plain: only the barrier orders the accesses
  std::atomic<int> wrong{0};
  run(pool, nth, [&](int ith, int) {
    for (int phase = 1; phase <= 200; ++phase) {
      value[static_cast<size_t>(ith)] = phase;
      pool.barrier();
      for (int i = 0; i < nth; ++i) wrong += value[static_cast<size_t>(i)] != phase;
      pool.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, SubsetsRunOnTheFirstThreadsOnlyAndTooWideOnesOnAll) {
  ThreadPool pool(threads_without_clamp(4));
  for (const int width : {1, 2, 3, 4, 7, 2, 1, 4}) {
    std::array<int, 4> calls{};
    const int expected = std::min(width, 4);
    run(pool, width, [&](int ith, int nth) {
      ASSERT_EQ(nth, expected);
      ++calls[static_cast<size_t>(ith)];
      pool.barrier();
    });
    for (int i = 0; i < 4; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)], i < expected ? 1 : 0);
  }
}

TEST(ThreadPool, ExceptionsReachTheCallerAndThePoolStaysUsable) {
  ThreadPool pool(threads_without_clamp(4));
  for (int thrower = 0; thrower < 4; ++thrower) {
    try {
      run(pool, 4, [&](int ith, int) {
        if (ith == thrower) throw std::runtime_error("thread " + std::to_string(ith));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "thread " + std::to_string(thrower));
    }
  }
  EXPECT_THROW(run(pool, 4, [](int, int) { throw std::runtime_error("all"); }), std::runtime_error);
  EXPECT_THROW(run(pool, 1, [](int, int) { throw std::runtime_error("alone"); }), std::runtime_error);
  std::atomic<int> calls{0};
  run(pool, 4, [&](int, int) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, AWorkerMayDispatchOnAnotherPool) {
  ThreadPool outer(threads_without_clamp(3));
  std::atomic<int> calls{0};
  run(outer, 3, [&](int, int) {
    ThreadPool inner(threads_without_clamp(2));
    run(inner, 2, [&](int, int) {
      inner.barrier();
      ++calls;
    });
    outer.barrier();  // the inner dispatch must not have changed who this thread is in the outer one
  });
  EXPECT_EQ(calls, 6);
}

TEST(ThreadPoolDeathTest, DispatchingFromInsideTheWorkIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(threads_without_clamp(2));
        run(pool, 2, [&](int, int) { run(pool, 2, [](int, int) {}); });
      },
      "CHECK");
}

}  // namespace
}  // namespace inferno
