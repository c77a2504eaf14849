#include <algorithm>
#include <cmath>

#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/codebook_fit.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 256;
constexpr int kSub = 32;
constexpr int kSubs = kBlock / kSub;
constexpr int kLowestScale = -32;
constexpr int kHighestScale = 31;
constexpr const int8_t* kValues = kCodebooks[static_cast<int>(Codebook::iq4_nl)];

int nearest_scale(float scale, float d) noexcept {
  const float quotient = d == 0.0F ? 0.0F : scale / d;
  const float within = std::clamp(quotient, static_cast<float>(kLowestScale), static_cast<float>(kHighestScale));
  return static_cast<int>(round_half_even(within));
}

// The integer scale of a sub-block, among the neighbours of `scale`, with the least error.
int best_scale(const float* x, const float* w, float d, int scale) noexcept {
  int best = scale;
  float least = codebook_error(x, w, kSub, d * static_cast<float>(scale), kValues);
  for (const int other : {scale - 1, scale + 1}) {
    if (other < kLowestScale || other > kHighestScale) continue;
    const float error = codebook_error(x, w, kSub, d * static_cast<float>(other), kValues);
    if (error < least) best = other, least = error;
  }
  return best;
}

// d by least squares for the codes that the scales give.
float refit(const float* x, const float* w, float d, const int* scales) noexcept {
  float xq = 0.0F;
  float qq = 0.0F;
  for (int j = 0; j < kSubs; ++j) {
    uint8_t codes[kSub];
    const auto scale = static_cast<float>(scales[j]);
    assign_codes(x + j * kSub, kSub, d * scale, kValues, codes);
    const CodebookSums sums = codebook_sums(x + j * kSub, w + j * kSub, kSub, codes, kValues);
    xq += scale * sums.xq;
    qq += scale * scale * sums.qq;
  }
  return qq == 0.0F ? d : xq / qq;
}

void pack(const uint8_t* codes, const int* scales, BlockIQ4_XS* block) noexcept {
  int high = 0;
  for (int j = 0; j < kSubs; ++j) {
    const int scale = scales[j] + 32;
    block->scales_l[j / 2] = static_cast<uint8_t>(block->scales_l[j / 2] | ((scale & 15) << (j % 2 * 4)));
    high |= (scale >> 4) << (2 * j);
  }
  block->scales_h = static_cast<uint16_t>(high);
  for (int j = 0; j < kSubs; ++j) {
    const uint8_t* sub = codes + j * kSub;
    for (int i = 0; i < 16; ++i) block->qs[16 * j + i] = static_cast<uint8_t>(sub[i] | (sub[i + 16] << 4));
  }
}
}  // namespace

void unpack_levels(const BlockIQ4_XS& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock; ++i) {
    levels[i] = kValues[(block.qs[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4)) & 15];
  }
}

void unpack_scales(const BlockIQ4_XS& block, int8_t* scales) noexcept {
  for (int j = 0; j < kSubs; ++j) {
    const int low = (block.scales_l[j / 2] >> (j % 2 * 4)) & 15;
    const int high = (block.scales_h >> (2 * j)) & 3;
    scales[j] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

void dequantize(const BlockIQ4_XS* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    int8_t scales[kSubs];
    unpack_levels(src[b], levels);
    unpack_scales(src[b], scales);
    scale_levels<kSub>(to_float(src[b].d), scales, levels, dst + b * kBlock);
  }
}

void quantize(const float* src, const float* importance, BlockIQ4_XS* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    float wanted[kSubs];
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    float peak = 0.0F;
    for (int j = 0; j < kSubs; ++j) {
      wanted[j] = fit_codebook_32(x + j * kSub, w + j * kSub, kValues);
      if (std::fabs(wanted[j]) > std::fabs(peak)) peak = wanted[j];
    }
    // The largest scale becomes the lowest integer, which is larger than the highest.
    int scales[kSubs];
    float d = to_float(to_f16_scale(peak / static_cast<float>(kLowestScale)));
    for (int j = 0; j < kSubs; ++j) scales[j] = nearest_scale(wanted[j], d);
    for (int round = 0; round < 2; ++round) {
      for (int j = 0; j < kSubs; ++j) scales[j] = best_scale(x + j * kSub, w + j * kSub, d, scales[j]);
      d = to_float(to_f16_scale(refit(x, w, d, scales)));
    }
    dst[b] = {};
    dst[b].d = to_f16_scale(d);
    uint8_t codes[kBlock];
    for (int j = 0; j < kSubs; ++j) {
      assign_codes(x + j * kSub, kSub, d * static_cast<float>(scales[j]), kValues, codes + j * kSub);
    }
    pack(codes, scales, &dst[b]);
  }
}

float dot(const BlockIQ4_XS* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    int8_t scales[kSubs];
    unpack_levels(row[b], levels);
    unpack_scales(row[b], scales);
    acc = chain(acc, dot_scaled_levels<kSub>(scales, levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
