// The search for scales of formats with a codebook: value = scale * codebook[code]. Internal to src/quant.
//
// As in level_fit.h: several scales around the one that just covers the largest value are tried, the one with the
// smallest least-squares residue wins, then assigning codes and least squares alternate. w is the weight of each
// value's error.
#pragma once

#include <cstdint>

namespace inferno {

// codes[n]: the nearest value of the codebook, whose 16 values ascend; with a scale of 0 the one nearest 0.
void assign_codes(const float* x, int n, float scale, const int8_t* codebook, uint8_t* codes) noexcept;

// The scale for 32 values that load_finite has made tame. Its sign is free; 0 if all values are 0.
[[nodiscard]] float fit_codebook_32(const float* x, const float* w, const int8_t* codebook) noexcept;

// The squared error of n values (at most 32) with the codes that a scale gives.
[[nodiscard]] float codebook_error(const float* x, const float* w, int n, float scale, const int8_t* codebook) noexcept;

// Sums from which the least-squares scale xq / qq follows, over what the codes of n values mean.
struct CodebookSums {
  float xq = 0.0F;
  float qq = 0.0F;
};
[[nodiscard]] CodebookSums codebook_sums(const float* x, const float* w, int n, const uint8_t* codes,
                                         const int8_t* codebook) noexcept;

}  // namespace inferno
