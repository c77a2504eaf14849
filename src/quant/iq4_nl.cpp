#include <initializer_list>

#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/codebook_fit.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;
constexpr const int8_t* kValues = kCodebooks[static_cast<int>(Codebook::iq4_nl)];

// The f16 scale of a block. The smallest halves are so far apart that the nearest to the wanted scale need not be the
// best, nor its sign; none at all may be better.
f16 block_scale(const float* x, const float* w) noexcept {
  const f16 nearest = to_f16_scale(fit_codebook_32(x, w, kValues));
  const int bits = static_cast<int>(nearest) & 0x7fff;
  if (bits == 0 || bits >= 0x400) return nearest;
  f16 best = nearest;
  float least = codebook_error(x, w, kBlock, to_float(nearest), kValues);
  for (int other = bits - 1; other <= bits + 1; ++other) {
    for (const int sign : {0, 0x8000}) {
      const auto d = static_cast<f16>(other | sign);
      const float error = codebook_error(x, w, kBlock, to_float(d), kValues);
      if (error < least) best = d, least = error;
    }
  }
  return best;
}
}  // namespace

void unpack_levels(const BlockIQ4_NL& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    levels[i] = kValues[block.qs[i] & 15];
    levels[i + 16] = kValues[block.qs[i] >> 4];
  }
}

void dequantize(const BlockIQ4_NL* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(src[b].d);
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]);
  }
}

void quantize(const float* src, const float* importance, BlockIQ4_NL* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    float x[kBlock];
    float w[kBlock];
    uint8_t codes[kBlock];
    load_finite(src + b * kBlock, kBlock, x);
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    dst[b].d = block_scale(x, w);
    assign_codes(x, kBlock, to_float(dst[b].d), kValues, codes);
    for (int i = 0; i < kBlock / 2; ++i) dst[b].qs[i] = static_cast<uint8_t>(codes[i] | (codes[i + 16] << 4));
  }
}

float dot(const BlockIQ4_NL* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(row[b].d), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
