#include <algorithm>
#include <cmath>

#include "quant/block_math.h"
#include "quant/blocks.h"
#include "quant/level_fit.h"
#include "quant/numerics.h"

namespace inferno {

namespace {
constexpr int kBlock = 32;
constexpr const int8_t* kValues = kCodebooks[static_cast<int>(Codebook::e2m1)];

// The code of the nearest value; never that of -0. Between two values as near, the one of even code.
uint8_t nearest_code(float value) noexcept {
  const float magnitude = std::fabs(value);
  int code = 0;
  for (int c = 0; c < 7; ++c) {
    const float middle = 0.5F * static_cast<float>(kValues[c] + kValues[c + 1]);
    if (magnitude > middle || (magnitude == middle && c % 2 != 0)) code = c + 1;
  }
  return static_cast<uint8_t>(value < 0.0F && code != 0 ? code | 8 : code);
}

// codes[32] for the scale 2^(e - 128), and the squared error.
double assign_codes(const float* x, const float* w, int e, uint8_t* codes) noexcept {
  const float d = to_float(e8m0_scale(static_cast<uint8_t>(e)));
  double error = 0.0;
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = nearest_code(x[i] / d);
    const double distance = double{d} * kValues[codes[i]] - x[i];
    error += double{w[i]} * (distance * distance);
  }
  return error;
}
}  // namespace

void unpack_levels(const BlockMXFP4& block, int8_t* levels) noexcept {
  for (int i = 0; i < kBlock / 2; ++i) {
    levels[i] = kValues[block.qs[i] & 15];
    levels[i + 16] = kValues[block.qs[i] >> 4];
  }
}

void dequantize(const BlockMXFP4* src, float* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    int8_t levels[kBlock];
    const float d = to_float(e8m0_scale(src[b].e));
    unpack_levels(src[b], levels);
    for (int i = 0; i < kBlock; ++i) dst[b * kBlock + i] = d * static_cast<float>(levels[i]);
  }
}

void quantize(const float* src, const float* importance, BlockMXFP4* dst, int64_t n) noexcept {
  for (int64_t b = 0; b < n / kBlock; ++b) {
    // As load_finite, but small values stay: an exponent of 8 bits has room for them.
    float x[kBlock];
    float peak = 0.0F;
    for (int i = 0; i < kBlock; ++i) {
      const float value = src[b * kBlock + i];
      x[i] = std::isnan(value) ? 0.0F : std::clamp(value, -kInputLimit, kInputLimit);
      peak = std::max(peak, std::fabs(x[i]));
    }
    dst[b] = {};
    if (peak == 0.0F) continue;
    float w[kBlock];
    load_weights(at_or_null(importance, b * kBlock), kBlock, w);
    // The exponent that puts the peak at 8 to 16 of the integer values, whose largest is 12, and its neighbours.
    const int middle = std::max(1, std::ilogb(peak) + 128 - 3);
    double best = -1.0;
    for (int e = middle - 1; e <= middle + 1; ++e) {
      uint8_t codes[kBlock];
      const double error = assign_codes(x, w, e, codes);
      if (best >= 0.0 && error >= best) continue;
      best = error;
      dst[b].e = static_cast<uint8_t>(e);
      for (int i = 0; i < kBlock / 2; ++i) dst[b].qs[i] = static_cast<uint8_t>(codes[i] | (codes[i + 16] << 4));
    }
  }
}

float dot(const BlockMXFP4* row, const ActivationView& x, int64_t k) noexcept {
  float acc = 0.0F;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    int8_t levels[kBlock];
    unpack_levels(row[b], levels);
    acc = chain(acc, dot_levels<kBlock>(levels, x.q + b * kBlock), to_float(e8m0_scale(row[b].e)), x.d[b]);
  }
  return acc;
}

}  // namespace inferno
