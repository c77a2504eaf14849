// F32, F16 and BF16 weights with f32 arithmetic. Each output is one chain of fused multiply-adds in ascending K, as in
// the scalar table, so all tables that use it give the same bits for any number of tokens.
//
// Activations: f32 rows rounded to the weight's type; for F16 also the rows as half floats, for the instructions that
// multiply half floats into f32 (an exact product, one rounding: the same bits), and a flag per row that says whether
// half floats could hold it.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {
namespace {

// Column i of 8 rows as f32.
struct F32Columns {
  static constexpr int kBytes = 4;
  static EightScales at(const uint8_t* group, int64_t i) {
    const auto* p = static_cast<const float*>(static_cast<const void*>(group)) + 8 * i;
    return {vld1q_f32(p), vld1q_f32(p + 4)};
  }
};
struct F16Columns {
  static constexpr int kBytes = 2;
  static EightScales at(const uint8_t* group, int64_t i) { return load_scales(group + 16 * i); }
};
struct Bf16Columns {
  static constexpr int kBytes = 2;
  static EightScales at(const uint8_t* group, int64_t i) {
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(group + 16 * i));
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
  }
};

template <int kTokens, int kGroups>
struct PlainSums {
  float32x4_t of[kGroups][kTokens][2];
};

template <typename Columns, int kLane, int kTokens, int kGroups>
inline void add_column(const uint8_t* const* groups, int64_t i, const float32x4_t* x, PlainSums<kTokens, kGroups>& s) {
  for (int g = 0; g < kGroups; ++g) {
    const EightScales w = Columns::at(groups[g], i + kLane);
    for (int t = 0; t < kTokens; ++t) {
      s.of[g][t][0] = vfmaq_laneq_f32(s.of[g][t][0], w.low, x[t], kLane);
      s.of[g][t][1] = vfmaq_laneq_f32(s.of[g][t][1], w.high, x[t], kLane);
    }
  }
}

// kGroups groups times kTokens rows of x, `stride` floats apart.
template <typename Columns, int kTokens, int kGroups>
inline void plain_tile(const uint8_t* const* groups, const float* x, int64_t stride, int64_t k,
                       PlainSums<kTokens, kGroups>& out) {
  PlainSums<kTokens, kGroups> s = {};
  int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    float32x4_t columns[kTokens];
    for (int t = 0; t < kTokens; ++t) columns[t] = vld1q_f32(x + t * stride + i);
    add_column<Columns, 0>(groups, i, columns, s);
    add_column<Columns, 1>(groups, i, columns, s);
    add_column<Columns, 2>(groups, i, columns, s);
    add_column<Columns, 3>(groups, i, columns, s);
  }
  for (; i < k; ++i) {
    float32x4_t column[kTokens];
    for (int t = 0; t < kTokens; ++t) column[t] = vdupq_n_f32(x[t * stride + i]);
    add_column<Columns, 0>(groups, i, column, s);
  }
  out = s;
}

#if defined(__ARM_FEATURE_FP16_FML)
// The same with half-float activations.
template <int kLane, int kTokens, int kGroups>
inline void add_half_column(const uint8_t* const* groups, int64_t i, const float16x8_t* x,
                            PlainSums<kTokens, kGroups>& s) {
  for (int g = 0; g < kGroups; ++g) {
    const float16x8_t w = vreinterpretq_f16_u8(vld1q_u8(groups[g] + 16 * (i + kLane)));
    for (int t = 0; t < kTokens; ++t) {
      s.of[g][t][0] = vfmlalq_laneq_low_f16(s.of[g][t][0], w, x[t], kLane);
      s.of[g][t][1] = vfmlalq_laneq_high_f16(s.of[g][t][1], w, x[t], kLane);
    }
  }
}
template <int kTokens, int kGroups>
inline void half_tile(const uint8_t* const* groups, const uint16_t* x, int64_t stride, int64_t k,
                      PlainSums<kTokens, kGroups>& out) {
  PlainSums<kTokens, kGroups> s = {};
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    float16x8_t columns[kTokens];
    for (int t = 0; t < kTokens; ++t) columns[t] = vreinterpretq_f16_u16(vld1q_u16(x + t * stride + i));
    add_half_column<0>(groups, i, columns, s);
    add_half_column<1>(groups, i, columns, s);
    add_half_column<2>(groups, i, columns, s);
    add_half_column<3>(groups, i, columns, s);
    add_half_column<4>(groups, i, columns, s);
    add_half_column<5>(groups, i, columns, s);
    add_half_column<6>(groups, i, columns, s);
    add_half_column<7>(groups, i, columns, s);
  }
  for (; i < k; ++i) {
    float16x8_t column[kTokens];
    for (int t = 0; t < kTokens; ++t) column[t] = vreinterpretq_f16_u16(vdupq_n_u16(x[t * stride + i]));
    add_half_column<0>(groups, i, column, s);
  }
  out = s;
}
#endif

// ---- activations

// Each row starts 16 bytes further in the cache's banks than the previous one: a tile reads eight of them in lockstep.
inline int64_t plain_stride(int64_t k) {
  return (k + 15) / 16 * 16 + 4;
}

struct PlainRows {
  float* f32;      // [tokens][stride]
  uint16_t* f16;   // [tokens][stride]
  int32_t* flags;  // [tokens] 1: half floats hold the row
};
inline PlainRows plain_rows(const void* buffer, int64_t tokens, int64_t k) {
  auto* f32 = static_cast<float*>(const_cast<void*>(buffer));
  auto* f16 = static_cast<uint16_t*>(static_cast<void*>(f32 + tokens * plain_stride(k)));
  return {f32, f16, static_cast<int32_t*>(static_cast<void*>(f16 + tokens * plain_stride(k)))};
}
template <DType kType>
inline int64_t plain_bytes(int64_t tokens, int64_t k) {
  const int64_t halves = kType == DType::f16 ? tokens * (plain_stride(k) * 2 + 4) : 0;
  return (tokens * plain_stride(k) * 4 + halves + 63) / 64 * 64;
}

// Whether half floats hold rows [begin, begin + count).
inline bool all_halves(const PlainRows& rows, int64_t begin, int64_t count) {
  for (int64_t t = begin; t < begin + count; ++t) {
    if (rows.flags[t] == 0) return false;
  }
  return true;
}

// Round to nearest even, NaN stays NaN; the result as f32.
inline float32x4_t round_to_bf16(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  const uint32x4_t chosen = vbslq_u32(vceqq_f32(x, x), rounded, quiet);
  return vreinterpretq_f32_u32(vandq_u32(chosen, vdupq_n_u32(0xffff0000U)));
}

// Up to four floats; missing lanes are zero.
inline float32x4_t load_some(const float* x, int64_t n) {
  if (n >= 4) return vld1q_f32(x);
  float some[4] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = x[i];
  return vld1q_f32(some);
}

inline void store_some(float* out, float32x4_t v, int64_t n) {
  if (n >= 4) {
    vst1q_f32(out, v);
    return;
  }
  float some[4];
  vst1q_f32(some, v);
  for (int64_t i = 0; i < n; ++i) out[i] = some[i];
}

template <DType kType>
inline void prepare_plain(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  const PlainRows rows = plain_rows(buffer, tokens, k);
  const int64_t stride = plain_stride(k);
  for (int64_t t = begin; t < end; ++t) {
    const float* from = x + t * x_stride;
    float* to = rows.f32 + t * stride;
    bool fits = true;
    if constexpr (kType == DType::f16) {
      uint32x4_t beyond = vdupq_n_u32(0);
      for (int64_t i = 0; i < k; i += 4) {
        beyond = vorrq_u32(beyond, vcgtq_f32(vabsq_f32(load_some(from + i, k - i)), vdupq_n_f32(65504.0F)));
      }
      fits = vmaxvq_u32(beyond) == 0;
      rows.flags[t] = fits ? 1 : 0;
    }
    for (int64_t i = 0; i < k; i += 4) {
      float32x4_t v = load_some(from + i, k - i);
      if constexpr (kType == DType::bf16) v = round_to_bf16(v);
      if constexpr (kType == DType::f16) {
        const float16x4_t half = vcvt_f16_f32(v);
        vst1_u16(rows.f16 + t * stride + i, vreinterpret_u16_f16(half));
        if (fits) v = vcvt_f32_f16(half);
      }
      vst1q_f32(to + i, v);
    }
  }
}

template <DType kType>
inline constexpr ActivationLayout kPlain = {kType == DType::f32   ? "f32"
                                            : kType == DType::f16 ? "f16"
                                                                  : "bf16",
                                            1, plain_bytes<kType>, prepare_plain<kType>};

// ---- products

// One to three tokens from `token` on: groups from four distant streams in lockstep, as in gemv.h; the chains of one
// group alone would be bound by their latency.
template <typename Columns, int kTokens>
inline void plain_gemv(const LinearTask& task, int64_t token, bool halves) {
  const PlainRows rows = plain_rows(task.activations, task.tokens, task.k);
  const int64_t stride = plain_stride(task.k);
  const int64_t group_bytes = task.k * 8 * Columns::kBytes;
  const int64_t first = task.row_begin / kInterleavedRows;
  const int64_t groups = (task.row_end + kInterleavedRows - 1) / kInterleavedRows - first;
  const int64_t part = (groups + kStreams - 1) / kStreams;
  for (int64_t i = 0; i < part; ++i) {
    int64_t at[kStreams];
    const uint8_t* group[kStreams];
    for (int s = 0; s < kStreams; ++s) {
      // Past the end: the first stream's group again, its result not stored.
      at[s] = i + s * part < groups ? first + i + s * part : -1;
      group[s] = static_cast<const uint8_t*>(task.weight) + (at[s] < 0 ? first + i : at[s]) * group_bytes;
    }
    PlainSums<kTokens, kStreams> sums;
#if defined(__ARM_FEATURE_FP16_FML)
    if (halves) {
      half_tile<kTokens, kStreams>(group, rows.f16 + token * stride, stride, task.k, sums);
    } else {
      plain_tile<Columns, kTokens, kStreams>(group, rows.f32 + token * stride, stride, task.k, sums);
    }
#else
    static_cast<void>(halves);
    plain_tile<Columns, kTokens, kStreams>(group, rows.f32 + token * stride, stride, task.k, sums);
#endif
    for (int s = 0; s < kStreams; ++s) {
      if (at[s] < 0) continue;
      for (int t = 0; t < kTokens; ++t)
        store_rows(task, token + t, at[s] * kInterleavedRows, sums.of[s][t][0], sums.of[s][t][1]);
    }
  }
}

// kTokens tokens from `token` on times one f32 group.
template <int kTokens>
inline void plain_panel(const LinearTask& task, const uint8_t* group, int64_t row, int64_t token) {
  const PlainRows rows = plain_rows(task.activations, task.tokens, task.k);
  const int64_t stride = plain_stride(task.k);
  PlainSums<kTokens, 1> sums;
  plain_tile<F32Columns, kTokens, 1>(&group, rows.f32 + token * stride, stride, task.k, sums);
  for (int t = 0; t < kTokens; ++t) store_rows(task, token + t, row, sums.of[0][t][0], sums.of[0][t][1]);
}

// The block of tokens: their rows stay in L2 while all weights are streamed.
inline constexpr int64_t kPlainTokenBytes = 384 << 10;

template <typename Columns>
inline void run_plain(const LinearTask& task) noexcept {
  constexpr bool kIsF16 = std::is_same_v<Columns, F16Columns>;
  const bool halves = kIsF16 && all_halves(plain_rows(task.activations, task.tokens, task.k), 0, task.tokens);
  // Widening a group pays from this many tokens on; below, groups are read once for every two or three tokens.
  constexpr int64_t kWiden = Columns::kBytes == 2 ? 8 : 4;
  if (task.tokens < kWiden) {
    int64_t t = 0;
    while (task.tokens - t > 4 || task.tokens - t == 3) {
      plain_gemv<Columns, 3>(task, t, halves);
      t += 3;
    }
    for (; task.tokens - t >= 2; t += 2) plain_gemv<Columns, 2>(task, t, halves);
    if (t < task.tokens) plain_gemv<Columns, 1>(task, t, halves);
    return;
  }
  // The instructions that multiply half floats run at half the rate of f32 ones, so each group is widened once per
  // block of tokens.
  const int64_t fit = kPlainTokenBytes / (task.k * 4) / 8 * 8;
  const int64_t step = fit < 8 ? 8 : fit;
  auto* widened = static_cast<float*>(task.scratch);
  for (int64_t first = 0; first < task.tokens; first += step) {
    const int64_t end = first + step < task.tokens ? first + step : task.tokens;
    for (int64_t row = task.row_begin; row < task.row_end; row += kInterleavedRows) {
      const uint8_t* group = static_cast<const uint8_t*>(task.weight) + row * task.k * Columns::kBytes;
      if constexpr (!std::is_same_v<Columns, F32Columns>) {
        for (int64_t i = 0; i < task.k; ++i) {
          const EightScales w = Columns::at(group, i);
          vst1q_f32(widened + 8 * i, w.low);
          vst1q_f32(widened + 8 * i + 4, w.high);
        }
        group = static_cast<const uint8_t*>(task.scratch);
      }
      int64_t t = first;
      for (; t + 8 <= end; t += 8) plain_panel<8>(task, group, row, t);
      for (; t + 4 <= end; t += 4) plain_panel<4>(task, group, row, t);
      for (; t < end; ++t) plain_panel<1>(task, group, row, t);
    }
  }
}

template <typename Columns>
inline int64_t plain_scratch(int64_t k, int64_t tokens) {
  return tokens < 4 || Columns::kBytes == 4 ? 0 : 8 * k * 4;
}

template <typename Columns, DType kType>
inline void set_plain(KernelTable& table, const char* name) {
  table.linear[static_cast<int>(kType)] = {name,
                                           &column_interleaved_layout(Columns::kBytes),
                                           &kPlain<kType>,
                                           kInterleavedRows,
                                           plain_scratch<Columns>,
                                           run_plain<Columns>};
}

}  // namespace
}  // namespace inferno
