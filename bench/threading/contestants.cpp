#include "contestants.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <barrier>
#include <thread>

#include "threading/thread_pool.h"
#include "threading/wait.h"

namespace inferno::bench {

namespace {

double nanoseconds(uint64_t ticks) {
  return static_cast<double>(ticks) * 1e3 / ticks_per_microsecond();
}

// Times `count` calls one by one, after count / 10 warm-up calls.
template <typename Call>
std::vector<double> sample(int count, Call call) {
  for (int i = 0; i < count / 10; ++i) call();
  std::vector<double> samples(static_cast<size_t>(count));
  for (double& slot : samples) {
    const uint64_t start = cpu_ticks();
    call();
    slot = nanoseconds(cpu_ticks() - start);
  }
  return samples;
}

// What every thread does in a barrier run; thread 0 records the samples.
template <typename Barrier>
void cross_barriers(int ith, int count, std::vector<double>& samples, Barrier barrier) {
  if (ith == 0) {
    samples = sample(count, barrier);
  } else {
    for (int i = 0; i < count / 10 + count; ++i) barrier();
  }
}

// ---- our pool ----

std::vector<double> pool_dispatch(int threads, int count) {
  ThreadPool pool({.threads = threads, .allow_oversubscription = true});
  return sample(count, [&] { pool.dispatch([](int, int, void*) {}, nullptr); });
}

std::vector<double> pool_barrier(int threads, int count) {
  ThreadPool pool({.threads = threads, .allow_oversubscription = true});
  struct Context {
    ThreadPool& pool;
    int count;
    std::vector<double> samples;
  } context{pool, count, {}};
  pool.dispatch(
      [](int ith, int, void* pointer) {
        auto& run = *static_cast<Context*>(pointer);
        cross_barriers(ith, run.count, run.samples, [&] { run.pool.barrier(); });
      },
      &context);
  return context.samples;
}

// ---- OpenMP ----

#if defined(_OPENMP)
std::vector<double> openmp_dispatch(int threads, int count) {
  return sample(count, [&] {
#pragma omp parallel num_threads(threads)
    asm volatile("" ::: "memory");
  });
}

std::vector<double> openmp_barrier(int threads, int count) {
  std::vector<double> samples;
#pragma omp parallel num_threads(threads)
  cross_barriers(omp_get_thread_num(), count, samples, [] {
#pragma omp barrier
  });
  return samples;
}
#endif

// ---- threads created for each call ----

template <typename Body>
void spawn_and_join(int threads, Body body) {
  std::vector<std::jthread> others;
  others.reserve(static_cast<size_t>(threads));
  for (int ith = 1; ith < threads; ++ith) others.emplace_back([&body, ith] { body(ith); });
  body(0);
}

std::vector<double> spawn_dispatch(int threads, int count) {
  return sample(count, [&] { spawn_and_join(threads, [](int) {}); });
}

std::vector<double> spawn_barrier(int threads, int count) {
  std::barrier<> barrier(threads);
  std::vector<double> samples;
  spawn_and_join(threads, [&](int ith) { cross_barriers(ith, count, samples, [&] { barrier.arrive_and_wait(); }); });
  return samples;
}

}  // namespace

std::vector<Contestant> all_contestants() {
  std::vector<Contestant> list;
  list.push_back({.name = "inferno pool", .dispatch = pool_dispatch, .barrier = pool_barrier});
#if defined(_OPENMP)
  list.push_back({.name = "OpenMP", .dispatch = openmp_dispatch, .barrier = openmp_barrier});
#endif
  list.push_back(
      {.name = "thread per call, std::barrier", .dispatch = spawn_dispatch, .barrier = spawn_barrier, .cost = 20});
  return list;
}

}  // namespace inferno::bench
