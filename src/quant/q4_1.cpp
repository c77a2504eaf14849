#include "quant/q4_1.h"

#include "quant/block_math.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;
}  // namespace

void unpack_levels(const BlockQ4_1& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    levels[i] = static_cast<int8_t>(block.qs[i] & 15);
    levels[i + 16] = static_cast<int8_t>(block.qs[i] >> 4);
  }
}

void dequantize(const BlockQ4_1* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(src[b].d);
    const float m = to_float(src[b].m);
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]) + m;
  }
}

float dot(const BlockQ4_1* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  float macc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
    macc = chain(macc, x.sums[b], to_float(row[b].m), x.d[b]);
  }
  return acc + macc;
}

}  // namespace inferno
