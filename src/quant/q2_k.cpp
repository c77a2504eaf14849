#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 256;
constexpr int kSub = 16;
}  // namespace

void unpack_levels(const BlockQ2_K& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) {
    const int byte = i / 128 * 32 + i % 32;
    const int shift = i % 128 / 32 * 2;
    levels[i] = static_cast<int8_t>((block.qs[byte] >> shift) & 3);
  }
}

void unpack_scales(const BlockQ2_K& block, uint8_t* scales, uint8_t* minimums) noexcept {
  for (int j = 0; j < kBlock / kSub; ++j) {
    scales[j] = block.scales[j] & 15;
    minimums[j] = block.scales[j] >> 4;
  }
}

void dequantize(const BlockQ2_K* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    uint8_t scales[kBlock / kSub];
    uint8_t minimums[kBlock / kSub];
    unpack_levels(src[b], levels);
    unpack_scales(src[b], scales, minimums);
    scale_levels<kSub>(to_float(src[b].d), to_float(src[b].dmin), scales, minimums, levels, dst + b * kBlock);
  }
}

void quantize(const float* src, const float* importance, BlockQ2_K* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    AffineSuperBlock fit;
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    fit_super_block(x, w, AffineLimits{.sub = kSub, .highest_level = 3, .highest_scale = 15}, &fit);
    dst[b] = {};
    dst[b].d = fit.d;
    dst[b].dmin = fit.dmin;
    for (int j = 0; j < kBlock / kSub; ++j) {
      dst[b].scales[j] = static_cast<uint8_t>(fit.scales[j] | (fit.minimums[j] << 4));
    }
    for (int i = 0; i < kBlock; ++i) {
      uint8_t& byte = dst[b].qs[i / 128 * 32 + i % 32];
      byte = static_cast<uint8_t>(byte | (fit.levels[i] << (i % 128 / 32 * 2)));
    }
  }
}

float dot(const BlockQ2_K* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    uint8_t scales[kBlock / kSub];
    uint8_t minimums[kBlock / kSub];
    unpack_levels(row[b], levels);
    unpack_scales(row[b], scales, minimums);
    acc = chain(acc, dot_scaled_levels<kSub>(scales, levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
    acc = chain(acc, -dot_minimums<kSub>(minimums, x.sums + b * 16), to_float(row[b].dmin), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
