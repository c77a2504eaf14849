// F32, F16 and BF16 weights with f32 arithmetic. Each output is one chain of fused multiply-adds in ascending K, as in
// the scalar table, so all tables that use it give the same bits for any number of tokens.
//
// Activations: f32 rows rounded to the weight's type; a row with a value that F16 cannot hold stays f32.
#pragma once

#include "backend/cpu/kernels/x86/floats.h"
#include "backend/cpu/kernels/x86/gemv.h"

namespace inferno {
namespace {

// Column i of 8 rows as f32.
struct F32Columns {
  static constexpr int kBytes = 4;
  static __m256 at(const uint8_t* group, int64_t i) {
    return _mm256_loadu_ps(static_cast<const float*>(static_cast<const void*>(group)) + 8 * i);
  }
};
struct F16Columns {
  static constexpr int kBytes = 2;
  static __m256 at(const uint8_t* group, int64_t i) { return load_scales(group + 16 * i); }
};
struct Bf16Columns {
  static constexpr int kBytes = 2;
  static __m256 at(const uint8_t* group, int64_t i) { return bf16_to_f32(load_128(group + 16 * i)); }
};

// ---- activations

inline int64_t plain_stride(int64_t k) {
  return (k + 15) / 16 * 16;
}
inline int64_t plain_bytes(int64_t tokens, int64_t k) {
  return tokens * plain_stride(k) * 4;
}

// Whether the weight's type can hold the row.
template <DType kType>
inline bool plain_fits(const float* x, int64_t k) {
  if constexpr (kType != DType::f16) return true;
  __m256 beyond = _mm256_setzero_ps();
  for (int64_t i = 0; i < k; i += 8) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), load_some(x + i, k - i));
    beyond = _mm256_or_ps(beyond, _mm256_cmp_ps(magnitude, _mm256_set1_ps(65504.0F), _CMP_GT_OQ));
  }
  return _mm256_movemask_ps(beyond) == 0;
}
template <DType kType>
inline __m256 plain_values(__m256 v, bool fits) {
  if constexpr (kType == DType::bf16) return round_to_bf16(v);
  if (kType == DType::f16 && fits) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  return v;
}

template <DType kType>
inline void prepare_plain(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  const int64_t stride = plain_stride(k);
  for (int64_t t = begin; t < end; ++t) {
    const float* from = x + t * x_stride;
    float* to = static_cast<float*>(buffer) + t * stride;
    const bool fits = plain_fits<kType>(from, k);
    for (int64_t i = 0; i < k; i += 8) _mm256_storeu_ps(to + i, plain_values<kType>(load_some(from + i, k - i), fits));
  }
}

template <DType kType>
inline constexpr ActivationLayout kPlain = {kType == DType::f32   ? "f32"
                                            : kType == DType::f16 ? "f16"
                                                                  : "bf16",
                                            1, plain_bytes, prepare_plain<kType>};

// ---- products

inline constexpr int64_t kPlainPanelTokens = 4;  // from here on groups are widened first
inline constexpr int kStreams = 4;

// A few tokens: groups from four distant streams in lockstep, as in gemv.h; the chains of one group alone would be
// bound by their latency.
template <typename Columns, int kTokens>
inline void plain_gemv(const LinearTask& task) {
  const auto* x = static_cast<const float*>(task.activations);
  const int64_t stride = plain_stride(task.k);
  const int64_t group_bytes = task.k * kInterleavedRows * Columns::kBytes;
  const int64_t first = task.row_begin / kInterleavedRows;
  const int64_t groups = (task.row_end + kInterleavedRows - 1) / kInterleavedRows - first;
  const int64_t part = (groups + kStreams - 1) / kStreams;
  for (int64_t n = 0; n < part; ++n) {
    int64_t at[kStreams];
    const uint8_t* group[kStreams];
    for (int s = 0; s < kStreams; ++s) {
      // Past the end: the first stream's group again, its result not stored.
      at[s] = n + s * part < groups ? first + n + s * part : -1;
      group[s] = static_cast<const uint8_t*>(task.weight) + (at[s] < 0 ? first + n : at[s]) * group_bytes;
    }
    __m256 sums[kStreams][kTokens] = {};
    for (int64_t i = 0; i < task.k; ++i) {
      __m256 w[kStreams];
      for (int s = 0; s < kStreams; ++s) w[s] = Columns::at(group[s], i);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 column = _mm256_set1_ps(x[t * stride + i]);
        for (int s = 0; s < kStreams; ++s) sums[s][t] = _mm256_fmadd_ps(w[s], column, sums[s][t]);
      }
    }
    for (int s = 0; s < kStreams; ++s) {
      if (at[s] < 0) continue;
      for (int t = 0; t < kTokens; ++t) store_rows(task, t, at[s] * kInterleavedRows, sums[s][t]);
    }
  }
}

// Two groups widened side by side: [k][16].
inline constexpr int64_t kPlainPanelRows = 2 * kInterleavedRows;

// Tokens [token, token + kTokens) times a panel.
template <int kTokens>
inline void plain_panel(const LinearTask& task, const float* panel, int64_t row, int64_t token) {
  constexpr int kVectors = static_cast<int>(kPlainPanelRows / kWide);
  const int64_t stride = plain_stride(task.k);
  const float* x = static_cast<const float*>(task.activations) + token * stride;
  Wide sums[kVectors][kTokens] = {};
  for (int64_t i = 0; i < task.k; ++i) {
    Wide w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = wide_load(panel + i * kPlainPanelRows + v * kWide);
    for (int t = 0; t < kTokens; ++t) {
      const Wide column = wide_set(x[t * stride + i]);
      for (int v = 0; v < kVectors; ++v) sums[v][t] = wide_fma(w[v], column, sums[v][t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    float products[kPlainPanelRows];
    for (int v = 0; v < kVectors; ++v) wide_store(products + v * kWide, sums[v][t]);
    store_rows(task, token + t, row, _mm256_loadu_ps(products));
    if (row + 8 < task.row_end) store_rows(task, token + t, row + 8, _mm256_loadu_ps(products + 8));
  }
}

template <typename Columns>
inline void run_plain(const LinearTask& task) noexcept {
  switch (task.tokens) {
    case 1:
      return plain_gemv<Columns, 1>(task);
    case 2:
      return plain_gemv<Columns, 2>(task);
    case 3:
      return plain_gemv<Columns, 3>(task);
    default:
      break;
  }
  // Many tokens: at once the most whose sums fit the registers.
  constexpr int64_t kMost = kWide == 16 ? 12 : 6;
  const int64_t group_bytes = task.k * kInterleavedRows * Columns::kBytes;
  auto* panel = static_cast<float*>(task.scratch);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPlainPanelRows) {
    const uint8_t* first = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * group_bytes;
    // No second group: the first in its place, its results are not stored.
    const uint8_t* second = row + kInterleavedRows < task.row_end ? first + group_bytes : first;
    for (int64_t i = 0; i < task.k; ++i) {
      _mm256_storeu_ps(panel + i * kPlainPanelRows, Columns::at(first, i));
      _mm256_storeu_ps(panel + i * kPlainPanelRows + 8, Columns::at(second, i));
    }
    int64_t t = 0;
    for (; t + kMost <= task.tokens; t += kMost) plain_panel<kMost>(task, panel, row, t);
    for (; t + 3 <= task.tokens; t += 3) plain_panel<3>(task, panel, row, t);
    for (; t < task.tokens; ++t) plain_panel<1>(task, panel, row, t);
  }
}

inline int64_t plain_scratch(int64_t k, int64_t tokens) {
  return tokens < kPlainPanelTokens ? 0 : kPlainPanelRows * k * 4;
}

template <typename Columns, DType kType>
inline void set_plain(KernelTable& table, const char* name) {
  table.linear[static_cast<int>(kType)] = {name,           &column_interleaved_layout(Columns::kBytes),
                                           &kPlain<kType>, kInterleavedRows,
                                           plain_scratch,  run_plain<Columns>};
}

inline void fill_plain(KernelTable& table, const char* name) {
  set_plain<F32Columns, DType::f32>(table, name);
  set_plain<F16Columns, DType::f16>(table, name);
  set_plain<Bf16Columns, DType::bf16>(table, name);
}

}  // namespace
}  // namespace inferno
