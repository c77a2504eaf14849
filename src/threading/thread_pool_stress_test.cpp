#include "threading/thread_pool_stress.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace inferno {
namespace {

using std::chrono::milliseconds;

double process_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) * 1e-3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// The CPU usage of this idle process, as a share of one CPU.
double idle_cpu_share(milliseconds duration) {
  const double before = process_cpu_ms();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(duration);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  return (process_cpu_ms() - before) / elapsed.count();
}

void count_call(int, int, void* context) {
  static_cast<std::atomic<int>*>(context)->fetch_add(1, std::memory_order_relaxed);
}

// Few spins reach the sleeping paths far more often than the default.
constexpr WaitPolicy kImpatient{.spins = 4, .contended_spins = 0, .yields = 1, .linger_us = 5};

class StressWidth : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, StressWidth, testing::Values(2, 4, 16));

TEST_P(StressWidth, RandomDispatchesWithBarriers) {
  ThreadPool pool({.threads = GetParam(), .allow_oversubscription = true});
  stress_pool(pool, 16'000 / GetParam(), 1);
}

TEST_P(StressWidth, RandomDispatchesWithBarriersThatMostlySleep) {
  ThreadPool pool({.threads = GetParam(), .allow_oversubscription = true, .wait = kImpatient});
  stress_pool(pool, 8'000 / GetParam(), 2);
}

TEST_P(StressWidth, DestroyingJoinsWorkersInEveryState) {
  std::atomic<int> calls{0};
  for (int round = 0; round < 60; ++round) {
    ThreadPool pool({.threads = GetParam(), .allow_oversubscription = true});
    if (round % 3 == 1) pool.dispatch(count_call, &calls);
    if (round % 3 == 2) pool.pause();
  }
  EXPECT_EQ(calls, 20 * GetParam());
}

TEST_P(StressWidth, PauseAndResumeRaceWithDispatches) {
  ThreadPool pool({.threads = GetParam(), .allow_oversubscription = true});
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&, i] {
      for (int round = i; !stop; ++round) {
        if (round % 2 == 0) {
          pool.pause();
        } else {
          pool.resume();
        }
        std::this_thread::yield();
      }
    });
  }
  stress_pool(pool, 4'000 / GetParam(), 3);
  stop = true;
  for (std::thread& thread : others) thread.join();
}

TEST(ThreadPoolStress, SeveralPoolsAtOnceDoNotDisturbEachOther) {
  std::vector<std::thread> users;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    users.emplace_back([seed] {
      ThreadPool pool({.threads = 3, .allow_oversubscription = true});
      stress_pool(pool, 1'500, seed);
    });
  }
  for (std::thread& user : users) user.join();
}

TEST(ThreadPoolStress, ConcurrentFirstUseOfGlobalGivesOnePool) {
  for (int round = 0; round < 10; ++round) {
    ThreadPool::destroy_global();
    std::vector<ThreadPool*> seen(6);
    std::vector<std::thread> users;
    for (ThreadPool*& slot : seen) users.emplace_back([&slot] { slot = &ThreadPool::global(); });
    for (std::thread& user : users) user.join();
    for (const ThreadPool* pool : seen) ASSERT_EQ(pool, seen[0]);
    std::atomic<int> calls{0};
    seen[0]->dispatch(count_call, &calls);
    ASSERT_EQ(calls, seen[0]->threads());
  }
  ThreadPool::destroy_global();
}

TEST(ThreadPoolStress, AnIdlePoolUsesNoCpuAfterTheLinger) {
  ThreadPool pool({.threads = 8, .allow_oversubscription = true});
  std::atomic<int> calls{0};
  for (int i = 0; i < 100; ++i) pool.dispatch(count_call, &calls);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(idle_cpu_share(milliseconds(500)), 0.01);
  pool.dispatch(count_call, &calls);
  EXPECT_EQ(calls, 101 * 8);
}

TEST(ThreadPoolStress, APausedPoolUsesNoCpuWhateverTheLinger) {
  ThreadPool pool({.threads = 8, .allow_oversubscription = true, .wait = {.linger_us = 60'000'000}});
  pool.pause();
  EXPECT_LT(idle_cpu_share(milliseconds(500)), 0.01);
  std::atomic<int> calls{0};
  pool.dispatch(count_call, &calls);  // works, and parks again
  pool.pause();
  EXPECT_LT(idle_cpu_share(milliseconds(500)), 0.01);
  pool.resume();
  pool.dispatch(count_call, &calls);
  EXPECT_EQ(calls, 16);
}

TEST(ThreadPoolStress, WorkersLeftOutOfEveryDispatchComeToRest) {
  ThreadPool pool({.threads = 6, .allow_oversubscription = true, .wait = {.linger_us = 500}});
  std::atomic<int> calls{0};
  // Narrow dispatches only, each followed by a pause longer than the linger: they must keep nobody awake.
  const double before = process_cpu_ms();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    pool.dispatch(2, count_call, &calls);
    std::this_thread::sleep_for(milliseconds(10));
  }
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT((process_cpu_ms() - before) / elapsed.count(), 0.25) << "five workers awake would use far more";
  EXPECT_EQ(calls, 100);
}

}  // namespace
}  // namespace inferno
