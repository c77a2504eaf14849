#include "threading/unit_pipeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "threading/thread_pool.h"

namespace inferno {
namespace {

constexpr UnitGrid kGrid = {.stages = 12, .blocks = 3};
// Every fifth stage has no units.
int32_t units(int32_t stage, int32_t block) {
  return stage % 5 == 4 ? 0 : 1 + (stage * 7 + block * 3) % 6;
}
bool reads_earlier(int32_t stage) {
  return stage % 5 == 2;
}
void yield_until(std::atomic<uint32_t>& done, uint32_t count) {
  while (done.load(std::memory_order_acquire) < count) SystemPlatform::yield();
}

struct Context {
  std::vector<std::atomic<uint32_t>> counts = std::vector<std::atomic<uint32_t>>(UnitCounts::size(kGrid));
  // [stage][block][unit]: 1 + the sum of all results that the unit reads. Not atomic: the pipeline orders them.
  int64_t results[kGrid.stages][kGrid.blocks][6] = {};
  int32_t stages_per_delay = 1;

  [[nodiscard]] int64_t read(int32_t stage, int32_t block) const {
    int32_t before = stage - 1;
    while (before >= 0 && units(before, block) == 0) --before;
    int64_t sum = 0;
    for (int32_t b = reads_earlier(stage) ? 0 : block; before >= 0 && b <= block; ++b) {
      for (int32_t u = 0; u < units(before, b); ++u) sum += results[before][b][u];
    }
    return sum % 1'000'003;
  }
};

// Stage by stage, on one thread.
std::unique_ptr<Context> reference() {
  auto context = std::make_unique<Context>();
  for (int32_t s = 0; s < kGrid.stages; ++s) {
    for (int32_t b = 0; b < kGrid.blocks; ++b) {
      for (int32_t u = 0; u < units(s, b); ++u) context->results[s][b][u] = 1 + u + context->read(s, b);
    }
  }
  return context;
}

TEST(UnitPipeline, EveryUnitRunsOnceAfterWhatItReads) {
  const std::unique_ptr<Context> expected = reference();
  for (const int threads : {1, 2, 4, 7}) {
    ThreadPool pool({.threads = threads, .allow_oversubscription = true});
    for (int round = 0; round < 50; ++round) {
      auto context = std::make_unique<Context>();
      context->stages_per_delay = 1 + round % 3;
      pool.dispatch(
          [](int /*ith*/, int /*nth*/, void* pointer) {
            auto& c = *static_cast<Context*>(pointer);
            run_units(
                UnitCounts(c.counts.data(), kGrid), kGrid, [&](int32_t stage) { return stage / c.stages_per_delay; },
                units, reads_earlier,
                [&](const Unit& unit) {
                  c.results[unit.stage][unit.block][unit.number] += 1 + unit.number + c.read(unit.stage, unit.block);
                },
                yield_until);
          },
          context.get());
      for (int32_t s = 0; s < kGrid.stages; ++s) {
        for (int32_t b = 0; b < kGrid.blocks; ++b) {
          for (int32_t u = 0; u < units(s, b); ++u) {
            ASSERT_EQ(context->results[s][b][u], expected->results[s][b][u]) << s << ", " << b << ", " << u;
          }
        }
      }
    }
  }
}

TEST(UnitPipeline, UnitsAreClaimedWaveByWave) {
  std::vector<std::atomic<uint32_t>> counts(UnitCounts::size({.stages = 3, .blocks = 2}));
  std::vector<std::pair<int32_t, int32_t>> order;
  run_units(
      UnitCounts(counts.data(), {.stages = 3, .blocks = 2}), {.stages = 3, .blocks = 2},
      [](int32_t stage) { return stage == 0 ? 0 : stage - 1; }, [](int32_t /*stage*/, int32_t /*block*/) { return 1; },
      [](int32_t /*stage*/) { return false; }, [&](const Unit& unit) { order.emplace_back(unit.stage, unit.block); },
      yield_until);
  // Stages 0 and 1 have the same delay.
  EXPECT_EQ(order, (std::vector<std::pair<int32_t, int32_t>>{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {2, 1}}));
}

}  // namespace
}  // namespace inferno
