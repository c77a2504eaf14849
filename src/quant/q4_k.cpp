#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/k_scales.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 256;
constexpr int kSub = 32;
}  // namespace

void unpack_levels(const BlockQ4_K& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) {
    const int byte = i / 64 * 32 + i % 32;
    const int shift = i % 64 / 32 * 4;
    levels[i] = static_cast<int8_t>((block.qs[byte] >> shift) & 15);
  }
}

void unpack_scales(const BlockQ4_K& block, uint8_t* scales, uint8_t* minimums) noexcept {
  unpack_k_scales(block.scales, scales, minimums);
}

void dequantize(const BlockQ4_K* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    uint8_t scales[kBlock / kSub];
    uint8_t minimums[kBlock / kSub];
    unpack_levels(src[b], levels);
    unpack_scales(src[b], scales, minimums);
    scale_levels<kSub>(to_float(src[b].d), to_float(src[b].dmin), scales, minimums, levels, dst + b * kBlock);
  }
}

void quantize(const float* src, const float* importance, BlockQ4_K* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    AffineSuperBlock fit;
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    fit_super_block(x, w, AffineLimits{.sub = kSub, .highest_level = 15, .highest_scale = 63}, &fit);
    dst[b] = {};
    dst[b].d = fit.d;
    dst[b].dmin = fit.dmin;
    pack_k_scales(fit.scales, fit.minimums, dst[b].scales);
    for (int i = 0; i < kBlock; ++i) {
      uint8_t& byte = dst[b].qs[i / 64 * 32 + i % 32];
      byte = static_cast<uint8_t>(byte | (fit.levels[i] << (i % 64 / 32 * 4)));
    }
  }
}

float dot(const BlockQ4_K* row, const ActivationView& x, int64_t k) noexcept {
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
