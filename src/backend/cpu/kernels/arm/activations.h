// Activations quantized to 8 bits (quant/activation.h has the contract; these write the same q, d and sums), one row
// after another: what matrix-vector kernels read.
//
// In blocks of 32:   q int8[k], d f32[k / 32], sums f32[k / 32]
// In blocks of 256:  q int8[k], d f32[k / 256], then 48 bytes per block: the sums of q over 32 columns (8 high parts,
//                    8 low parts) and over 16 (16 high, 16 low); sum = 64 * high + low, so that 8-bit dot products
//                    multiply them by the minimums.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

inline constexpr int kSumBytes = 48;

inline int64_t row_bytes_32(int64_t k) {
  return (k + k / 32 * 8 + 63) / 64 * 64;
}
inline int64_t row_bytes_256(int64_t k) {
  return (k + k / 256 * (4 + kSumBytes) + 63) / 64 * 64;
}

struct Row32 {
  int8_t* q;
  float* d;
  float* sums;
};
struct Row256 {
  int8_t* q;
  float* d;
  int8_t* sums;
};
inline Row32 row_32(const void* buffer, int64_t token, int64_t k) {
  auto* row = static_cast<int8_t*>(const_cast<void*>(buffer)) + token * row_bytes_32(k);
  auto* d = static_cast<float*>(static_cast<void*>(row + k));
  return {row, d, d + k / 32};
}
inline Row256 row_256(const void* buffer, int64_t token, int64_t k) {
  auto* row = static_cast<int8_t*>(const_cast<void*>(buffer)) + token * row_bytes_256(k);
  return {row, static_cast<float*>(static_cast<void*>(row + k)), row + k + k / 256 * 4};
}

// q[kCount] = round(x * inverse), halves to even.
template <int kCount>
inline void to_levels(const float* x, float inverse, int8_t* q) {
  for (int i = 0; i < kCount; i += 16) {
    int32x4_t v[4];
    for (int j = 0; j < 4; ++j) v[j] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4 * j), inverse));
    const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
    const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(v[2]), vreinterpretq_s16_s32(v[3]));
    vst1q_s8(q + i, vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high)));
  }
}

// d and 1 / d of a block. Special cases: d is NaN for a block with a value that is not finite and 0 for one so small
// that 1 / d overflows; 1 / d is 0 for both, so that their levels are 0.
template <int kBlock>
inline void block_scale(const float* x, float* d, float* inverse) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffffU);
  uint32x4_t top[4] = {};
  for (int i = 0; i < kBlock; i += 16) {
    for (int j = 0; j < 4; ++j) {
      top[j] = vmaxq_u32(top[j], vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i + 4 * j)), magnitude));
    }
  }
  const uint32_t bits = vmaxvq_u32(vmaxq_u32(vmaxq_u32(top[0], top[1]), vmaxq_u32(top[2], top[3])));
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  *d = amax / 127.0F;
  *inverse = 1.0F / *d;
  uint32_t inverse_bits;
  __builtin_memcpy(&inverse_bits, inverse, 4);
  constexpr uint32_t kInfinity = 0x7f800000U;
  if (bits >= kInfinity || (inverse_bits & 0x7fffffffU) >= kInfinity) {
    *d = bits >= kInfinity ? __builtin_nanf("") : 0.0F;
    *inverse = 0.0F;
  }
}

// The same for four blocks of 32.
inline void scales_of_four(const float* x, float* d, float* inverse) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffffU);
  const uint32x4_t infinity = vdupq_n_u32(0x7f800000U);
  const auto bits = [&](int64_t i) { return vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude); };
  uint32x4_t top[4];
  for (int b = 0; b < 4; ++b) {
    uint32x4_t m[4];
    for (int j = 0; j < 4; ++j) m[j] = vmaxq_u32(bits(32 * b + 4 * j), bits(32 * b + 16 + 4 * j));
    top[b] = vmaxq_u32(vmaxq_u32(m[0], m[1]), vmaxq_u32(m[2], m[3]));
  }
  const uint32x4_t amax = vpmaxq_u32(vpmaxq_u32(top[0], top[1]), vpmaxq_u32(top[2], top[3]));
  const float32x4_t scale = vdivq_f32(vreinterpretq_f32_u32(amax), vdupq_n_f32(127.0F));
  const float32x4_t by = vdivq_f32(vdupq_n_f32(1.0F), scale);
  const uint32x4_t not_finite = vcgeq_u32(amax, infinity);
  const uint32x4_t apart = vorrq_u32(not_finite, vcgeq_u32(vandq_u32(vreinterpretq_u32_f32(by), magnitude), infinity));
  const float32x4_t zero = vdupq_n_f32(0.0F);
  const float32x4_t nan = vdupq_n_f32(__builtin_nanf(""));
  vst1q_f32(d, vbslq_f32(not_finite, nan, vbslq_f32(apart, zero, scale)));
  vst1q_f32(inverse, vbslq_f32(apart, zero, by));
}

// The sums over 16 columns each of q[128].
inline int16x8_t sums_of_16(const int8_t* q) {
  int16x8_t s[8];
  for (int i = 0; i < 8; ++i) s[i] = vpaddlq_s8(vld1q_s8(q + 16 * i));
  const int16x8_t low = vpaddq_s16(vpaddq_s16(s[0], s[1]), vpaddq_s16(s[2], s[3]));
  const int16x8_t high = vpaddq_s16(vpaddq_s16(s[4], s[5]), vpaddq_s16(s[6], s[7]));
  return vpaddq_s16(low, high);
}

// sums[48] of one block of 256.
inline void split_sums(const int8_t* q, int8_t* sums) {
  const int16x8_t a = sums_of_16(q);
  const int16x8_t b = sums_of_16(q + 128);
  const int16x8_t by_32 = vpaddq_s16(a, b);
  const int16x8_t low = vdupq_n_s16(63);
  vst1_s8(sums, vshrn_n_s16(by_32, 6));
  vst1_s8(sums + 8, vmovn_s16(vandq_s16(by_32, low)));
  vst1q_s8(sums + 16, vshrn_high_n_s16(vshrn_n_s16(a, 6), b, 6));
  vst1q_s8(sums + 32, vmovn_high_s16(vmovn_s16(vandq_s16(a, low)), vandq_s16(b, low)));
}

// Blocks of 32, up to four at a time: put(block, count, q, d, sums). The scales of 16 blocks are computed first:
// divisions have a long latency, and this way they overlap.
template <typename Put>
inline void quantize_blocks_32(const float* x, int64_t blocks, const Put& put) {
  constexpr int64_t kStretch = 16;
  float d[kStretch];
  float inverse[kStretch];
  alignas(16) int8_t q[128];
  float sums[4];
  for (int64_t first = 0; first + 4 <= blocks; first += kStretch) {
    const int64_t fours = (blocks - first < kStretch ? blocks - first : kStretch) / 4;
    for (int64_t i = 0; i < fours; ++i) scales_of_four(x + (first + 4 * i) * 32, d + 4 * i, inverse + 4 * i);
    for (int64_t i = 0; i < 4 * fours; i += 4) {
      for (int j = 0; j < 4; ++j) to_levels<32>(x + (first + i + j) * 32, inverse[i + j], q + 32 * j);
      vst1q_f32(sums, vcvtq_f32_s32(vpaddlq_s16(sums_of_16(q))));
      put(first + i, 4, q, d + i, sums);
    }
  }
  for (int64_t b = blocks / 4 * 4; b < blocks; ++b) {
    block_scale<32>(x + b * 32, d, inverse);
    to_levels<32>(x + b * 32, inverse[0], q);
    sums[0] = static_cast<float>(vaddlvq_s8(vld1q_s8(q)) + vaddlvq_s8(vld1q_s8(q + 16)));
    put(b, 1, q, d, sums);
  }
}

inline void quantize_row_32(const float* x, int64_t k, const Row32& row) {
  quantize_blocks_32(x, k / 32, [&](int64_t b, int64_t count, const int8_t* q, const float* d, const float* sums) {
    for (int64_t i = 0; i < count * 32; i += 16) vst1q_s8(row.q + b * 32 + i, vld1q_s8(q + i));
    for (int64_t i = 0; i < count; ++i) {
      row.d[b + i] = d[i];
      row.sums[b + i] = sums[i];
    }
  });
}

// Blocks of 256: put(block, q, d). A block is long enough to hide its division.
template <typename Put>
inline void quantize_blocks_256(const float* x, int64_t blocks, const Put& put) {
  for (int64_t b = 0; b < blocks; ++b) {
    float d;
    float inverse;
    alignas(16) int8_t q[256];
    block_scale<256>(x + b * 256, &d, &inverse);
    to_levels<256>(x + b * 256, inverse, q);
    put(b, q, d);
  }
}

inline void quantize_row_256(const float* x, int64_t k, const Row256& row) {
  quantize_blocks_256(x, k / 256, [&](int64_t b, const int8_t* q, float d) {
    for (int i = 0; i < 256; i += 16) vst1q_s8(row.q + b * 256 + i, vld1q_s8(q + i));
    row.d[b] = d;
    split_sums(q, row.sums + b * kSumBytes);
  });
}

inline int64_t rows_bytes_32(int64_t tokens, int64_t k) {
  return tokens * row_bytes_32(k);
}
inline int64_t rows_bytes_256(int64_t tokens, int64_t k) {
  return tokens * row_bytes_256(k);
}
inline void prepare_rows_32(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                            void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) quantize_row_32(x + t * x_stride, k, row_32(buffer, t, k));
}
inline void prepare_rows_256(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin,
                             int64_t end, void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) quantize_row_256(x + t * x_stride, k, row_256(buffer, t, k));
}

inline constexpr ActivationLayout kRows32 = {"8 bits per 32, rows", 1, rows_bytes_32, prepare_rows_32};
inline constexpr ActivationLayout kRows256 = {"8 bits per 256, rows", 1, rows_bytes_256, prepare_rows_256};

}  // namespace
}  // namespace inferno
