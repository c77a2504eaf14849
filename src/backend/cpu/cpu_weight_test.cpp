#include "backend/cpu/cpu_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "quant/quant.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

// Rows of numbers, and a note of who read which.
class WatchedRows final : public WeightSource {
 public:
  WatchedRows(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), shape_(rows, cols) {
    const int64_t row = row_bytes(dtype, cols);
    bytes_.resize(static_cast<size_t>(rows * row));
    std::vector<float> values(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < values.size(); ++c) {
        values[c] = static_cast<float>((r * 37 + static_cast<int64_t>(c) * 11) % 101 - 50);
      }
      quantize_row(dtype, values.data(), bytes_.data() + r * row, cols);
    }
  }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    const auto row = static_cast<uint64_t>(row_bytes(dtype_, shape_.cols()));
    const std::lock_guard lock(mutex_);
    for (uint64_t r = offset / row; r < (offset + out.size()) / row; ++r) {
      if (static_cast<int64_t>(r) == broken_row) fail("row {} cannot be read", r);
      readers[static_cast<int64_t>(r)] = std::this_thread::get_id();
    }
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

  int64_t broken_row = -1;
  mutable std::map<int64_t, std::thread::id> readers;

 private:
  std::string name_ = "rows";
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> bytes_;
  mutable std::mutex mutex_;
};

constexpr int64_t kRows = 203;
constexpr int64_t kCols = 512;

TEST(CpuWeight, IsTheSameWhoeverPacksItAndEveryThreadPacksTheRowsItMultiplies) {
  ThreadPool pool({.threads = 3, .allow_oversubscription = true});
  std::vector<std::thread::id> ids(3);
  pool.dispatch(
      [](int ith, int, void* context) {
        (*static_cast<std::vector<std::thread::id>*>(context))[static_cast<size_t>(ith)] = std::this_thread::get_id();
      },
      &ids);
  for (const DType dtype : {DType::f32, DType::f16, DType::q8_0, DType::q5_0, DType::q4_k, DType::q6_k}) {
    SCOPED_TRACE(dtype_name(dtype));
    const WatchedRows source(dtype, kRows, kCols);
    const CpuWeight alone(source, WeightUse::matmul, best_kernels());
    source.readers.clear();
    const CpuWeight together(source, WeightUse::matmul, best_kernels(), &pool);
    ASSERT_EQ(alone.bytes(), together.bytes());
    EXPECT_EQ(std::memcmp(alone.groups(), together.groups(), alone.bytes()), 0);
    for (int ith = 0; ith < 3; ++ith) {
      const Range mine = slice(kRows, ith, 3, together.slice_step());
      for (int64_t r = mine.begin; r < mine.end; ++r) EXPECT_EQ(source.readers[r], ids[static_cast<size_t>(ith)]) << r;
    }
  }
}

TEST(CpuWeight, AReadThatFailsOnAWorkerReachesTheCaller) {
  ThreadPool pool({.threads = 3, .allow_oversubscription = true});
  WatchedRows source(DType::q8_0, kRows, kCols);
  source.broken_row = kRows - 1;
  EXPECT_THROW(CpuWeight(source, WeightUse::matmul, best_kernels(), &pool), Error);
}

}  // namespace
}  // namespace inferno
