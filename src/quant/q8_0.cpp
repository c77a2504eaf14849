#include <algorithm>
#include <cmath>

#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;
}  // namespace

void unpack_levels(const BlockQ8_0& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) levels[i] = block.qs[i];
}

void dequantize(const BlockQ8_0* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(src[b].d);
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]);
  }
}

void quantize(const float* src, const float* /*importance*/, BlockQ8_0* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    load_finite(src + b * kBlock, kBlock, x);
    float amax = 0.0F;
    for (const float value : x) amax = std::max(amax, std::fabs(value));
    dst[b].d = to_f16_scale(amax / 127.0F);
    assign_levels(x, kBlock, to_float(dst[b].d), 0.0F, -127, 127, dst[b].qs);
  }
}

float dot(const BlockQ8_0* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
