// The arithmetic of a quantized linear, exactly. Every kernel of every CPU table gives these bits.
//
// One output is the product of one weight row and one activation row (activation.h). From acc = +0, per block b in
// ascending order:
//
//   acc = fma(float(isum_b), dw_b * dx_b, acc)
//   acc = fma(float(msum_b), mw_b * dx_b, acc)       only where a row below names mw
//
// dw_b, mw_b: the block's scales widened to f32 (exact). dx_b: the activation scale. A product of scales is rounded
// to f32 before the fma. isum_b and msum_b are integers, exact in int32, so the order inside a block does not matter;
// float() is one conversion, round to nearest even (K sums may exceed 2^24). No flush to zero anywhere.
//
//   block                  isum_b                                    mw_b   msum_b
//    32                    sum_i w_i * q_i                           -      -
//    32, with m            sum_i w_i * q_i                           m      sum_i q_i
//   256                    sum_j scale_j * sum_i w_ij * q_ij         -      -
//   256, with m            sum_j scale_j * sum_i w_ij * q_ij         m      -sum_j minimum_j * sum_i q_ij
//
// (tensor/weight_formats.inc says which format is which.) w are the levels of unpack_levels: without their offset where
// they are signed, the integers of the codebook where there is one. j runs over the sub-blocks, scale_j and minimum_j
// are theirs.
// Largest |isum_b|: 520,192 (Q8_0) per 32; 133,169,152 (Q6_K) per 256. Largest |msum_b|: 2,048,256 (Q4_K).
// A kernel may as well compute with unsigned levels and take offset * sum_i q_i off: integers are exact either way.
//
// Plain weights (F32, F16, BF16) have no such bits in common. Weights are never rounded, activations are rounded to the
// weight's type (a row that F16 cannot hold stays f32), sums are f32. The order of the sums is a table's own, the same
// for any number of tokens, rows and threads: one chain of fused multiply-adds in ascending K, or that of the machine's
// bf16 matrix instructions, which count subnormals as zero (arm/bf16_linear.h, x86/amx_bf16.h). Any two tables differ
// by at most 2^-22 * sqrt(k) of the sum of magnitudes.
#pragma once

#include <cmath>
#include <cstdint>

namespace inferno {

// One link of the chain.
[[nodiscard]] inline float chain(float acc, int32_t isum, float dw, float dx) noexcept {
  return std::fma(static_cast<float>(isum), dw * dx, acc);
}

}  // namespace inferno
