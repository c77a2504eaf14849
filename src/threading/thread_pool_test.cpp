#include "threading/thread_pool.h"
#include "base/log.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "threading/affinity.h"
#include "threading/thread_plan.h"

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

// Many-thread tests run at these widths, in the sanitizer builds too.
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

TEST(ThreadPool, WhoWaitsAtABarrierTakesTurnsAndWhoComesLastDoesNot) {
  struct Context {
    ThreadPool pool{{.threads = 2, .allow_oversubscription = true}};
    std::array<std::atomic<int>, 2> calls{};
  } context;
  context.pool.dispatch(
      [](int ith, int /*nth*/, void* pointer) {
        auto& [pool, calls] = *static_cast<Context*>(pointer);
        if (ith == 1) {
          while (calls[0] == 0) std::this_thread::yield();
        }
        pool.barrier(SpinHook{[](void* count) noexcept { ++*static_cast<std::atomic<int>*>(count); },
                              &calls[static_cast<size_t>(ith)]});
      },
      &context);
  EXPECT_GT(context.calls[0], 0);
  EXPECT_EQ(context.calls[1], 0);
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

TEST(ThreadPool, MoreThreadsThanCpusAreClampedUnlessAllowed) {
  ThreadPool pool({.threads = 100'000});
  EXPECT_EQ(pool.threads(), available_cpu_count());
  ThreadPool wide(threads_without_clamp(available_cpu_count() + 2));
  EXPECT_EQ(wide.threads(), available_cpu_count() + 2);
}

TEST(ThreadPool, ShrinksToTheThreadsItGets) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__has_feature)
  GTEST_SKIP() << "a sanitizer's own memory does not fit under an address space limit";
#else
  // Room for a few more stacks only. In a child, because the limit cannot be raised again.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [] {
    constexpr rlim_t kStack = 8 << 20;
    std::string size;
    std::ifstream("/proc/self/statm") >> size;
    const rlim_t now = std::stoull(size) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    const rlimit stack{kStack, RLIM_INFINITY};
    setrlimit(RLIMIT_STACK, &stack);
    const rlimit space{now + 20 * kStack, now + 20 * kStack};
    setrlimit(RLIMIT_AS, &space);
    set_log_sink(log_to_stderr);
    ThreadPool pool(threads_without_clamp(200));
    std::atomic<int> calls{0};
    run(pool, pool.threads(), [&](int, int) {
      pool.barrier();
      ++calls;
    });
    if (pool.threads() >= 2 && pool.threads() < 200 && calls == pool.threads()) std::exit(0);
    std::exit(1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "threads could be created");
#endif
}

TEST(ThreadPool, PinsItsThreadsAndGivesTheMakerBackItsCpus) {
  const std::vector<int> before = thread_cpus(pthread_self());
  if (before.size() < 2) GTEST_SKIP() << "needs two CPUs";
  {
    ThreadPool pool({.threads = 2, .cpus = {{before[1]}, {before[0]}}});
    std::array<std::vector<int>, 2> seen;
    run(pool, 2, [&](int ith, int) { seen[static_cast<size_t>(ith)] = thread_cpus(pthread_self()); });
    EXPECT_EQ(seen[0], std::vector{before[1]});
    EXPECT_EQ(seen[1], std::vector{before[0]});
  }
  EXPECT_EQ(thread_cpus(pthread_self()), before);
}

TEST(ThreadPool, StatisticsCountDispatchesAndBarriersPerOp) {
  ThreadPool pool(threads_without_clamp(3));
  pool.set_op(7);
  for (int i = 0; i < 10; ++i) {
    run(pool, 3, [&](int, int) {
      pool.barrier();
      pool.barrier(9);
    });
  }
  pool.set_op(2);
  run(pool, 1, [](int, int) {});
  const PoolStats stats = pool.stats();
  ASSERT_EQ(stats.ops.size(), 3U);
  EXPECT_EQ(stats.ops[0].op, 2);
  EXPECT_EQ(stats.ops[0].dispatches, 1U);
  EXPECT_EQ(stats.ops[0].wakes, 0U) << "a width of one is a direct call";
  EXPECT_EQ(stats.ops[1].op, 7);
  EXPECT_EQ(stats.ops[1].dispatches, 10U);
  EXPECT_EQ(stats.ops[1].wakes, 20U);
  EXPECT_EQ(stats.ops[1].barriers, 30U);
  EXPECT_GT(stats.ops[1].wake_max_ns, 0);
  EXPECT_EQ(stats.ops[2].op, 9);
  EXPECT_EQ(stats.ops[2].dispatches, 0U);
  EXPECT_EQ(stats.ops[2].barriers, 30U);
  EXPECT_NE(format_pool_stats(stats).find("op 7"), std::string::npos);
  pool.reset_stats();
  EXPECT_TRUE(pool.stats().ops.empty());
}

TEST(ThreadPool, ImbalanceTellsTheTimeSpentWaitingForTheSlowest) {
  ThreadPool pool(threads_without_clamp(2));
  run(pool, 2, [](int ith, int) {
    if (ith == 0) std::this_thread::sleep_for(std::chrono::milliseconds(40));
  });
  // Thread 1 finishes immediately and waits 40 ms: half of the two threads' time.
  EXPECT_NEAR(pool.stats().ops.at(0).imbalance, 0.5, 0.2);
}

}  // namespace
}  // namespace inferno
