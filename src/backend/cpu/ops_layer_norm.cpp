// LayerNorm: the same plain loops in every table. Sums are doubles in kSumLanes fixed parts, which a compiler may keep
// in vectors and must not reorder.
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"

namespace inferno::cpu {
namespace {

constexpr int64_t kSumLanes = 8;

template <typename F>
double sum_lanes(int64_t n, F term) noexcept {
  double parts[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) parts[lane] += term(i + lane);
  }
  for (; i < n; ++i) parts[i % kSumLanes] += term(i);
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace

void run(const LayerNormArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const auto count = static_cast<double>(cols);
  const float* weight = cpu(a.weight).vector();
  const float* bias = a.bias != nullptr ? cpu(a.bias).vector() : nullptr;
  const Range rows = w.slice(a.x.rows());
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = a.x.f32() + r * cols;
    float* out = a.out.f32() + r * cols;
    const double mean = sum_lanes(cols, [&](int64_t i) { return static_cast<double>(x[i]); }) / count;
    const double variance = sum_lanes(cols,
                                      [&](int64_t i) {
                                        const double part = x[i] - mean;
                                        return part * part;
                                      }) /
                            count;
    const auto factor = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(a.eps)));
    const auto middle = static_cast<float>(mean);
    for (int64_t i = 0; i < cols; ++i) {
      const float scaled = (x[i] - middle) * factor * weight[i];
      out[i] = bias != nullptr ? scaled + bias[i] : scaled;
    }
  }
}

}  // namespace inferno::cpu
