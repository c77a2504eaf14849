#include "quant/activation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/block_math.h"

namespace inferno {

namespace {

// x[block] -> q[block], d, sums[block / sum_span]
void quantize_block(const float* x, int block, int sum_span, int8_t* q, float* d, int16_t* sums) noexcept {
  uint32_t amax_bits = 0;
  for (int i = 0; i < block; ++i) amax_bits = std::max(amax_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  const float amax = std::bit_cast<float>(amax_bits);
  const float scale = amax / 127.0F;
  const float inverse = 1.0F / scale;
  if (!std::isfinite(amax) || !std::isfinite(inverse)) {
    *d = std::isfinite(amax) ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    std::fill_n(q, block, int8_t{0});
    std::fill_n(sums, block / sum_span, int16_t{0});
    return;
  }
  *d = scale;
  // |x * inverse| <= 127 * (1 + 2^-20), so nothing rounds beyond 127.
  for (int i = 0; i < block; ++i) q[i] = static_cast<int8_t>(round_half_even(x[i] * inverse));
  for (int s = 0; s < block / sum_span; ++s) {
    int sum = 0;
    for (int i = 0; i < sum_span; ++i) sum += q[s * sum_span + i];
    sums[s] = static_cast<int16_t>(sum);
  }
}

}  // namespace

ActivationRow activation_row(int block, void* buffer, int64_t k) noexcept {
  auto* q = static_cast<int8_t*>(buffer);
  auto* d = reinterpret_cast<float*>(q + k);
  auto* sums = reinterpret_cast<int16_t*>(d + k / block);
  return {q, d, sums};
}

void quantize_activation_32(const float* x, int64_t k, const ActivationRow& out) noexcept {
  for (int64_t b = 0; b < k / 32; ++b) quantize_block(x + b * 32, 32, 32, out.q + b * 32, out.d + b, out.sums + b);
}

void quantize_activation_256(const float* x, int64_t k, const ActivationRow& out) noexcept {
  for (int64_t b = 0; b < k / 256; ++b) {
    quantize_block(x + b * 256, 256, 16, out.q + b * 256, out.d + b, out.sums + b * 16);
  }
}

}  // namespace inferno
