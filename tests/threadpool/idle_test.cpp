// An idle loaded model must not use the CPU.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "engine/builtin_model.h"
#include "engine/engine.h"
#include "engine/generate.h"

namespace inferno {
namespace {

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Idle, ALoadedModelUsesLessThanOnePercentOfACpuBetweenGenerations) {
  // `make test-idle` waits 5 s.
  const char* text = std::getenv("INFERNO_IDLE_SECONDS");
  const std::chrono::duration<double> wait(text != nullptr ? std::atof(text) : 1.0);
  EngineOptions options;
  options.backend = "parallel";
  Engine engine(open_model(""), options);
  const Request request{.prompt = {1, 2, 3}, .max_new_tokens = 16, .stop_at_end = false};
  ASSERT_EQ(generate(engine, request).samples.front().ids.size(), 16U);

  const double before = process_cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(wait);  // the workers' linger included
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const double share = (process_cpu_seconds() - before) / elapsed.count();
  RecordProperty("cpu_percent", std::to_string(100 * share));
  printf("  %.3f %% of a CPU over %.1f s, %d threads\n", 100 * share, elapsed.count(), engine.backend().workers());
  EXPECT_LT(share, 0.01);
  EXPECT_EQ(generate(engine, request).samples.front().ids.size(), 16U) << "and it still works";
}

}  // namespace
}  // namespace inferno
