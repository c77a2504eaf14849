// BF16 weights with the bf16 matrix instructions: 2 rows x 2 tokens x 4 columns each, f32 sums. Each output adds its
// steps of 4 columns in ascending K, whatever the number of tokens. The instructions round in their own way (products
// of a step are summed before they are added to the total, subnormals count as zero).
//
// Activations: pairs of tokens, for each 4 columns 4 values of the first and 4 of the second; the last pair and the
// last columns are padded with zeros.
#pragma once

#include "backend/cpu/kernels/arm/gemv.h"
#include "backend/cpu/kernels/arm/plain_linear.h"

namespace inferno {
namespace {

inline int64_t pair_stride(int64_t k) {
  return (k + 3) / 4 * 8;  // values of one pair
}
inline int64_t pairs_bytes(int64_t tokens, int64_t k) {
  return ((tokens + 1) / 2 * pair_stride(k) * 2 + 63) / 64 * 64;
}
inline void prepare_pairs(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  const int64_t last = end == tokens ? (tokens + 1) / 2 * 2 : end;
  for (int64_t t = begin; t < last; ++t) {
    auto* to = static_cast<uint16_t*>(buffer) + t / 2 * pair_stride(k) + t % 2 * 4;
    for (int64_t i = 0; i < k; i += 4) {
      const float32x4_t v = t < tokens ? load_some(x + t * x_stride + i, k - i) : vdupq_n_f32(0);
      vst1_u16(to + 2 * i, vreinterpret_u16_bf16(vcvt_bf16_f32(v)));
    }
  }
}
inline constexpr ActivationLayout kBf16Pairs = {"bf16, pairs", 2, pairs_bytes, prepare_pairs};

inline bfloat16x8_t load_bf16(const void* p, int64_t offset) {
  return vreinterpretq_bf16_u16(vld1q_u16(static_cast<const uint16_t*>(p) + offset));
}

// kGroups groups of 8 rows times kPairs pairs of tokens: [group][row pair][token pair].
template <int kPairs, int kGroups>
inline void bf16_tile(const uint8_t* const* groups, const uint16_t* x, int64_t stride, int64_t steps,
                      float32x4_t (&out)[kGroups][4][kPairs]) {
  float32x4_t s[kGroups][4][kPairs] = {};
  for (int64_t i = 0; i < steps; ++i) {
    bfloat16x8_t token[kPairs];
    for (int j = 0; j < kPairs; ++j) token[j] = load_bf16(x, j * stride + 8 * i);
    for (int g = 0; g < kGroups; ++g) {
      for (int r = 0; r < 4; ++r) {
        const bfloat16x8_t row = load_bf16(groups[g], 32 * i + 8 * r);
        for (int j = 0; j < kPairs; ++j) s[g][r][j] = vbfmmlaq_f32(s[g][r][j], row, token[j]);
      }
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int r = 0; r < 4; ++r) {
      for (int j = 0; j < kPairs; ++j) out[g][r][j] = s[g][r][j];
    }
  }
}

template <int kPairs, int kGroups>
inline void bf16_groups(const LinearTask& task, const int64_t* at, int64_t pair) {
  const int64_t steps = (task.k + 3) / 4;
  const uint8_t* group[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    group[g] = static_cast<const uint8_t*>(task.weight) + (at[g] < 0 ? at[0] : at[g]) * steps * 64;
  }
  const int64_t stride = pair_stride(task.k);
  float32x4_t s[kGroups][4][kPairs];
  bf16_tile<kPairs, kGroups>(group, static_cast<const uint16_t*>(task.activations) + pair * stride, stride, steps, s);
  for (int g = 0; g < kGroups; ++g) {
    if (at[g] < 0) continue;
    for (int j = 0; j < kPairs; ++j) {
      const int64_t token = 2 * (pair + j);
      const int64_t row = at[g] * kInterleavedRows;
      store_rows(task, token, row, vuzp1q_f32(s[g][0][j], s[g][1][j]), vuzp1q_f32(s[g][2][j], s[g][3][j]));
      if (token + 1 == task.tokens) continue;
      store_rows(task, token + 1, row, vuzp2q_f32(s[g][0][j], s[g][1][j]), vuzp2q_f32(s[g][2][j], s[g][3][j]));
    }
  }
}

inline void run_bf16(const LinearTask& task) noexcept {
  const int64_t first = task.row_begin / kInterleavedRows;
  const int64_t groups = (task.row_end + kInterleavedRows - 1) / kInterleavedRows - first;
  const int64_t pairs = (task.tokens + 1) / 2;
  if (pairs <= 2) {
    const int64_t part = (groups + kStreams - 1) / kStreams;
    for (int64_t i = 0; i < part; ++i) {
      int64_t at[kStreams];
      for (int s = 0; s < kStreams; ++s) at[s] = i + s * part < groups ? first + i + s * part : -1;
      if (pairs == 1) {
        bf16_groups<1, kStreams>(task, at, 0);
      } else {
        bf16_groups<2, 2>(task, at, 0);
        if (at[2] >= 0) bf16_groups<2, 2>(task, at + 2, 0);
      }
    }
    return;
  }
  const int64_t fit = kPlainTokenBytes / (pair_stride(task.k) * 2) / 4 * 4;
  const int64_t step = fit < 4 ? 4 : fit;
  for (int64_t begin = 0; begin < pairs; begin += step) {
    const int64_t end = begin + step < pairs ? begin + step : pairs;
    for (int64_t g = first; g < first + groups; ++g) {
      int64_t pair = begin;
      for (; pair + 4 <= end; pair += 4) bf16_groups<4, 1>(task, &g, pair);
      for (; pair < end; ++pair) bf16_groups<1, 1>(task, &g, pair);
    }
  }
}

inline void set_bf16(KernelTable& table, const char* name) {
  table.linear[static_cast<int>(DType::bf16)] = {
      name, &pair_interleaved_layout(), &kBf16Pairs, kInterleavedRows, no_scratch, run_bf16};
}

}  // namespace
}  // namespace inferno
