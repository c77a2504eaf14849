#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;

void pack_levels(const int8_t* levels, BlockQ4_0* block) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    block->qs[i] = static_cast<uint8_t>((levels[i] + 8) | ((levels[i + 16] + 8) << 4));
  }
}
}  // namespace

void unpack_levels(const BlockQ4_0& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    levels[i] = static_cast<int8_t>((block.qs[i] & 15) - 8);
    levels[i + 16] = static_cast<int8_t>((block.qs[i] >> 4) - 8);
  }
}

void dequantize(const BlockQ4_0* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(src[b].d);
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]);
  }
}

void quantize(const float* src, const float* importance, BlockQ4_0* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    int8_t levels[kBlock];
    load_finite(src + b * kBlock, kBlock, x);
    load_weights_by_size(at_or_null(importance, b * kBlock), x, kBlock, w);
    dst[b].d = to_f16_scale(fit_scale_32(x, w, -8, 7));
    assign_levels(x, kBlock, to_float(dst[b].d), 0.0F, -8, 7, levels);
    pack_levels(levels, &dst[b]);
  }
}

float dot(const BlockQ4_0* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
