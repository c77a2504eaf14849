#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 256;
constexpr int kSub = 16;
}  // namespace

void unpack_levels(const BlockQ3_K& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) {
    const int byte = i / 128 * 32 + i % 32;
    const int shift = i % 128 / 32 * 2;
    const int third = (block.hmask[i % 32] >> (i / 32)) & 1;
    levels[i] = static_cast<int8_t>((((block.qs[byte] >> shift) & 3) | (third << 2)) - 4);
  }
}

void unpack_scales(const BlockQ3_K& block, int8_t* scales) noexcept {
  for (int j = 0; j < kBlock / kSub; ++j) {
    const int low = (block.scales[j % 8] >> (j / 8 * 4)) & 15;
    const int high = (block.scales[8 + j % 4] >> (j / 4 * 2)) & 3;
    scales[j] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

void dequantize(const BlockQ3_K* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    int8_t scales[kBlock / kSub];
    unpack_levels(src[b], levels);
    unpack_scales(src[b], scales);
    scale_levels<kSub>(to_float(src[b].d), scales, levels, dst + b * kBlock);
  }
}

void quantize(const float* src, const float* importance, BlockQ3_K* dst, int64_t n) noexcept {
  constexpr ScaledLimits kLimits = {.lowest_level = -4, .highest_level = 3, .lowest_scale = -32, .highest_scale = 31};
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    ScaledSuperBlock fit;
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    fit_super_block(x, w, kLimits, &fit);
    dst[b] = {};
    dst[b].d = fit.d;
    for (int j = 0; j < kBlock / kSub; ++j) {
      const int scale = fit.scales[j] + 32;
      uint8_t& low = dst[b].scales[j % 8];
      uint8_t& high = dst[b].scales[8 + j % 4];
      low = static_cast<uint8_t>(low | ((scale & 15) << (j / 8 * 4)));
      high = static_cast<uint8_t>(high | ((scale >> 4) << (j / 4 * 2)));
    }
    for (int i = 0; i < kBlock; ++i) {
      const int level = fit.levels[i] + 4;
      uint8_t& low = dst[b].qs[i / 128 * 32 + i % 32];
      uint8_t& third = dst[b].hmask[i % 32];
      low = static_cast<uint8_t>(low | ((level & 3) << (i % 128 / 32 * 2)));
      third = static_cast<uint8_t>(third | ((level >> 2) << (i / 32)));
    }
  }
}

float dot(const BlockQ3_K* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    int8_t scales[kBlock / kSub];
    unpack_levels(row[b], levels);
    unpack_scales(row[b], scales);
    acc = chain(acc, dot_scaled_levels<kSub>(scales, levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
