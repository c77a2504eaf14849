// Activations quantized to 8 bits: the right-hand side of every quantized linear.
//
// Each block of 32 values (for Q8_0, Q4_0, Q4_1, Q5_0, Q5_1) or 256 values (for the K formats) has one f32 scale:
//   amax = the largest |x| of the block, d = amax / 127, q = round_half_even(x * (1 / d)), value = d * q
// Two cases are set apart so that every implementation agrees on every input:
//   - 1 / d is not finite (the block is zero or vanishingly small): d = 0 and every q = 0.
//   - the block holds a NaN or an infinity: d = NaN and every q = 0, so that every output that reads it is NaN.
// |x| compares as an unsigned integer once the sign bit is cleared, so one integer maximum finds amax and both cases.
//
// The sums of the q fold the weights' minimums and offsets (numerics.h): one per 32 values in blocks of 32, one per 16
// values in blocks of 256.
//
// A row is three separate arrays, so that a kernel streams int8 without gaps and loads scales as vectors.
#pragma once

#include <cstdint>

namespace inferno {

struct ActivationView {
  const int8_t* q;      // (k): -127..127
  const float* d;       // (k / block)
  const int16_t* sums;  // (k / 32) in blocks of 32, (k / 16) in blocks of 256
};

// The same arrays, to be written.
struct ActivationRow {
  int8_t* q;
  float* d;
  int16_t* sums;

  operator ActivationView() const { return {q, d, sums}; }  // NOLINT(google-explicit-constructor)
};

// Bytes of the buffer of one row of k values in blocks of 32 or 256; a multiple of 64.
[[nodiscard]] constexpr int64_t activation_row_bytes(int block, int64_t k) {
  const int64_t sums = block == 32 ? k / 32 : k / 16;
  return (k + k / block * 4 + sums * 2 + 63) / 64 * 64;
}

// The arrays of one row inside its buffer: q, then d, then sums. The buffer is 64-byte aligned.
[[nodiscard]] ActivationRow activation_row(int block, void* buffer, int64_t k) noexcept;

// x[k]; k a multiple of the block. The reference for every faster quantizer, which must write the same bytes.
void quantize_activation_32(const float* x, int64_t k, const ActivationRow& out) noexcept;
void quantize_activation_256(const float* x, int64_t k, const ActivationRow& out) noexcept;

}  // namespace inferno
