// Random dispatches with barriers, for tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "threading/thread_pool.h"

namespace inferno {

// `dispatches` dispatches of random width (1 ... threads) with 0 ... 3 barriers each. Plain cells are written before
// and read after every barrier, so a sanitizer sees any missing order; now and then the caller sleeps past the linger
// time, so that workers park in between.
inline void stress_pool(ThreadPool& pool, int64_t dispatches, uint32_t seed) {
  struct Cell {
    alignas(kHotLine) int64_t value = 0;
  };
  struct Context {
    ThreadPool& pool;
    int64_t dispatch = 0;
    int barriers = 0;
    std::array<Cell, 64> cells{};
    std::array<Cell, 64> wrong{};
  } context{.pool = pool};
  ASSERT_LE(pool.threads(), 64);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> any_width(1, pool.threads());
  std::uniform_int_distribution<int> any_barriers(0, 3);
  std::uniform_int_distribution<int> any_nap(0, 20'000);
  for (context.dispatch = 1; context.dispatch <= dispatches; ++context.dispatch) {
    const int width = any_width(random);
    context.barriers = any_barriers(random);
    pool.dispatch(
        width,
        [](int ith, int nth, void* pointer) {
          auto& run = *static_cast<Context*>(pointer);
          const auto me = static_cast<size_t>(ith);
          const auto next = static_cast<size_t>((ith + 1) % nth);
          for (int phase = 0; phase < run.barriers; ++phase) {
            const int64_t mark = run.dispatch * 10 + phase;
            run.cells[me].value = mark;
            run.pool.barrier();
            if (run.cells[next].value != mark) ++run.wrong[me].value;
            run.pool.barrier();
          }
          run.cells[me].value = run.dispatch * 10 + 9;
        },
        &context);
    for (int i = 0; i < width; ++i) ASSERT_EQ(context.cells[static_cast<size_t>(i)].value, context.dispatch * 10 + 9);
    if (any_nap(random) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  for (const Cell& wrong : context.wrong) ASSERT_EQ(wrong.value, 0);
}

}  // namespace inferno
