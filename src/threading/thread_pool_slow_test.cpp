#include "threading/thread_pool_stress.h"

namespace inferno {
namespace {

TEST(ThreadPoolSlow, AMillionRandomDispatchesOnTheCpusThereAre) {
  ThreadPool pool;
  stress_pool(pool, 1'000'000, 1);
}

TEST(ThreadPoolSlow, AMillionRandomDispatchesOnFourThreads) {
  ThreadPool pool({.threads = 4, .allow_oversubscription = true});
  stress_pool(pool, 1'000'000, 2);
}

TEST(ThreadPoolSlow, ManyPoolsOneAfterTheOther) {
  for (int round = 0; round < 2'000; ++round) {
    ThreadPool pool({.threads = 1 + round % 16, .allow_oversubscription = true});
    stress_pool(pool, round % 7, static_cast<uint32_t>(round));
  }
}

}  // namespace
}  // namespace inferno
