#include "backend/cpu/weight_prefetcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kernels/select.h"
#include "backend/cpu/worker.h"

namespace inferno {
namespace {

class Zeros final : public WeightSource {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  void read(uint64_t /*offset*/, std::span<std::byte> out) const override { std::memset(out.data(), 0, out.size()); }

 private:
  std::string name_ = "zeros";
  Shape shape_ = Shape(64, 256);
};

constexpr int64_t kKib = 1024;  // a row of the weights
constexpr int64_t kSlice = 16 * kKib;

// Two products with an op without weights between them; the second of four workers.
class PrefetchOfTwoProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    plan_.record(LinearArgs{.x = x_, .w = {&first_}, .out = {x_}});
    plan_.record(ScaleArgs{.x = x_, .s = 1, .out = x_});
    plan_.record(LinearArgs{.x = x_, .w = {&second_}, .out = {x_}});
    prefetcher_.enter(0);
  }
  static MemoryRange part(const CpuWeight& weight, int64_t begin, int64_t bytes) {
    return {static_cast<const std::byte*>(weight.groups()) + kSlice + begin, bytes};
  }
  void expect_prefetches(const MemoryRange& own, const std::vector<MemoryRange>& wanted) {
    const std::span<const MemoryRange> got = prefetcher_.prefetches_for(own);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].begin, wanted[i].begin) << i;
      EXPECT_EQ(got[i].bytes, wanted[i].bytes) << i;
    }
  }

  const Tensor x_{nullptr, Shape(1, 256)};
  const CpuWeight first_{Zeros(), WeightUse::matmul, scalar_kernels()};
  const CpuWeight second_{Zeros(), WeightUse::matmul, scalar_kernels()};
  Plan plan_{8};
  const Worker worker_{.ith = 1, .nth = 4, .kernels = &scalar_kernels()};
  WeightPrefetcher prefetcher_{plan_, worker_};
};

TEST_F(PrefetchOfTwoProducts, StaysAheadAcrossOps) {
  // The first 4 KiB are prefetched at once.
  expect_prefetches(part(first_, 0, kSlice), {part(first_, 4 * kKib, 12 * kKib), part(second_, 0, 4 * kKib)});
  prefetcher_.enter(2);
  expect_prefetches(part(second_, 0, 8 * kKib), {part(second_, 4 * kKib, 8 * kKib)});
}

TEST_F(PrefetchOfTwoProducts, SkipsWhatOthersHaveClaimed) {
  expect_prefetches(part(first_, 0, kKib), {part(first_, 4 * kKib, kKib)});
  expect_prefetches(part(first_, 12 * kKib, kKib), {part(second_, 0, kKib)});
}

TEST_F(PrefetchOfTwoProducts, KnowsNothingOfSlicesOfOthers) {
  EXPECT_TRUE(prefetcher_.prefetches_for(part(first_, kSlice, kKib)).empty());
  EXPECT_TRUE(prefetcher_.prefetches_for(part(second_, 0, kKib)).empty()) << "not of this op";
}

TEST_F(PrefetchOfTwoProducts, WaitsPrefetchEverythingAndLeaveNothingToProducts) {
  for (int i = 0; i < 1000; ++i) prefetcher_.prefetch_in_wait();
  expect_prefetches(part(first_, 0, kSlice), {part(first_, 0, 0)});
}

TEST_F(PrefetchOfTwoProducts, AWaitBeforeTheSecondDropsTheFirst) {
  prefetcher_.enter(1);
  prefetcher_.prefetch_in_wait();
  prefetcher_.enter(2);
  // One iteration of the wait has prefetched 16 lines.
  expect_prefetches(part(second_, 0, 2 * kKib), {part(second_, 4 * kKib, 2 * kKib)});
}

}  // namespace
}  // namespace inferno
