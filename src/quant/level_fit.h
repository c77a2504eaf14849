// The search for scales: which scale and offset represent a block of values with the least squared error, each value's
// own weighted by w.
// Internal to src/quant; the quantizers of the formats are built of it.
//
// How it works. A scale decides the levels (by rounding), and levels decide the best scale (by least squares), so the
// search tries several scales around the one that just covers the largest value, keeps the one whose least-squares
// residue is smallest, and repeats rounding and least squares from there. Super-blocks then round the scales of their
// sub-blocks to integers, refit the two f16 factors, and let every sub-block try the neighbours of its integers.
//
// Every function takes values that load_finite has made tame and returns finite numbers.
#pragma once

#include <cstdint>

#include "tensor/half.h"

namespace inferno {

// Above what any format can represent, and small enough that sums of squares stay finite in f32.
inline constexpr float kInputLimit = 1e15F;
// Half the smallest f16: no format represents less, and its inverse is far from infinity.
inline constexpr float kInputFloor = 0x1p-25F;

// dst[n] = src[n] with NaN and magnitudes below kInputFloor as 0, and larger ones cut to kInputLimit
void load_finite(const float* src, int n, float* dst) noexcept;

// How much an error of each value counts, w[n]: all alike, or by the importance of its column (an imatrix); the largest
// is 1, none is below kLeastWeight. importance[n] is finite and >= 0, or null.
inline constexpr float kLeastWeight = 1e-6F;
void load_weights(const float* importance, int n, float* w) noexcept;
// The same times sqrt(mean square + its square): for Q4_0, whose 16 even levels have no offset, and fitted to the many
// small values clip the few large ones. x is what load_finite made.
void load_weights_by_size(const float* importance, const float* x, int n, float* w) noexcept;

[[nodiscard]] inline const float* at_or_null(const float* values, int64_t offset) noexcept {
  return values == nullptr ? nullptr : values + offset;
}

// The nearest finite half.
[[nodiscard]] f16 to_finite_f16(float value) noexcept;
// The same for a scale: one that is not 0 does not become 0, since any step serves a block better than none.
[[nodiscard]] f16 to_f16_scale(float value) noexcept;

// levels[n] = round_half_even((x[n] - offset) / scale) within [lowest, highest]; all levels are the one nearest 0 when
// scale is 0.
void assign_levels(const float* x, int n, float scale, float offset, int lowest, int highest, int8_t* levels) noexcept;

// The scale for value = scale * level of 32 values, level in [lowest, highest], lowest < 0. Its sign is free.
[[nodiscard]] float fit_scale_32(const float* x, const float* w, int lowest, int highest) noexcept;

struct AffineFit {
  float scale;  // >= 0
  float offset;
};
// The scale and offset for value = scale * level + offset of 32 values, level in [0, highest].
[[nodiscard]] AffineFit fit_affine_32(const float* x, const float* w, int highest) noexcept;

// 256 values as d * scale_j * level, sub-blocks of 16.
struct ScaledSuperBlock {
  f16 d;
  int8_t scales[16];
  int8_t levels[256];
};
struct ScaledLimits {
  int lowest_level, highest_level;
  int lowest_scale, highest_scale;
};
void fit_super_block(const float* x, const float* w, const ScaledLimits& limits, ScaledSuperBlock* out) noexcept;

// 256 values as d * scale_j * level - dmin * minimum_j, sub-blocks of 16 or 32.
struct AffineSuperBlock {
  f16 d;
  f16 dmin;
  uint8_t scales[16];
  uint8_t minimums[16];
  int8_t levels[256];
};
struct AffineLimits {
  int sub;            // 16 or 32
  int highest_level;  // from 0
  int highest_scale;  // of scales and minimums, from 0
};
void fit_super_block(const float* x, const float* w, const AffineLimits& limits, AffineSuperBlock* out) noexcept;

}  // namespace inferno
