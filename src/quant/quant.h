// Every weight format behind one name: dequantize, quantize and the reference dot product by DType.
//
// All functions are stateless and allocate nothing; rows are independent, so threads may share a tensor by rows. Row
// pointers may have any alignment. Any input is fine: a NaN quantizes to zero, an infinity to the largest value.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/dtype.h"

namespace inferno {

// src: row_bytes(dtype, n) bytes; dst[n]. n is a multiple of the block size; dtype is any weight type (not i32).
void dequantize_row(DType dtype, const void* src, float* dst, int64_t n) noexcept;

// src[n]; dst: row_bytes(dtype, n) bytes. F16 and BF16 round to nearest even and keep NaN and infinity as they are.
// importance[n], finite and not negative, or null: how much an error in each column matters; formats that search for
// their scales spend it there.
void quantize_row(DType dtype, const float* src, void* dst, int64_t n, const float* importance = nullptr) noexcept;

// Values per activation block that a quantized weight format meets: 32 or 256.
[[nodiscard]] constexpr int activation_block(DType dtype) {
  return dtype_info(dtype).block_size;
}

// One weight row of a quantized format times one activation row of its block size, as numerics.h states. k: the row's
// length.
[[nodiscard]] float dot_row(DType dtype, const void* weight_row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
