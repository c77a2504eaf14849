#include "quant/q5_0.h"

#include "quant/block_math.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;
}  // namespace

void unpack_levels(const BlockQ5_0& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low_fifth = (block.qh[i / 8] >> (i % 8)) & 1;
    const int high_fifth = (block.qh[2 + i / 8] >> (i % 8)) & 1;
    levels[i] = static_cast<int8_t>(((block.qs[i] & 15) | (low_fifth << 4)) - 16);
    levels[i + 16] = static_cast<int8_t>(((block.qs[i] >> 4) | (high_fifth << 4)) - 16);
  }
}

void dequantize(const BlockQ5_0* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(src[b].d);
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]);
  }
}

float dot(const BlockQ5_0* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
