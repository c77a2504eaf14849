#include <algorithm>

#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 256;
constexpr int kSub = 16;
}  // namespace

void unpack_levels(const BlockQ6_K& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) {
    const int half = i / 128;
    const int low = (block.ql[half * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
    const int high = (block.qh[half * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    levels[i] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

void dequantize(const BlockQ6_K* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(src[b], levels);
    scale_levels<kSub>(to_float(src[b].d), src[b].scales, levels, dst + b * kBlock);
  }
}

void quantize(const float* src, const float* importance, BlockQ6_K* dst, int64_t n) noexcept {
  constexpr ScaledLimits kLimits = {
      .lowest_level = -32, .highest_level = 31, .lowest_scale = -128, .highest_scale = 127};
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    ScaledSuperBlock fit;
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    fit_super_block(x, w, kLimits, &fit);
    dst[b] = {};
    dst[b].d = fit.d;
    std::copy_n(fit.scales, kBlock / kSub, dst[b].scales);
    for (int i = 0; i < kBlock; ++i) {
      const int level = fit.levels[i] + 32;
      uint8_t& low = dst[b].ql[i / 128 * 64 + i % 64];
      uint8_t& high = dst[b].qh[i / 128 * 32 + i % 32];
      low = static_cast<uint8_t>(low | ((level & 15) << (i % 128 / 64 * 4)));
      high = static_cast<uint8_t>(high | ((level >> 4) << (i % 128 / 32 * 2)));
    }
  }
}

float dot(const BlockQ6_K* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_scaled_levels<kSub>(row[b].scales, levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
