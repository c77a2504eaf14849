// Attention of few queries (decoding) over one span of a bf16 cache: keys and values are rearranged for the matrix
// instructions on the fly. It is memory-bound, and reads rows a few at a time, almost in the order of their addresses.
#pragma once

#include "backend/cpu/kernels/arm/attention_bf16_layout.h"

namespace inferno {
namespace {

inline constexpr int64_t kFewQueries = 4;
inline constexpr int64_t kFewRows = 16;          // rows of values
inline constexpr int64_t kFewPrefetchRows = 48;  // prefetch distance, into L3: a page has few rows

struct FewScratch {
  float* scores;      // [kFewQueries][kAttentionSpan]
  float* o;           // [dims / 8][4 pairs][4][2][2]
  uint16_t* q;        // [steps][4 pairs][2][4]
  uint16_t* weights;  // [kAttentionSpan / 4][4 pairs][2][4]
};
inline int64_t few_scratch_bytes(int64_t head_dim) {
  return kFewQueries * kAttentionSpan * 4 + 8 * head_dim * 4 + 8 * head_dim * 2 + 8 * kAttentionSpan * 2;
}
inline FewScratch few_scratch(const SpanTask& task) {
  FewScratch s;
  s.scores = static_cast<float*>(task.scratch);
  s.o = s.scores + kFewQueries * kAttentionSpan;
  s.q = static_cast<uint16_t*>(static_cast<void*>(s.o + 8 * task.head_dim));
  s.weights = s.q + 8 * task.head_dim;
  return s;
}

inline bool few_queries(const SpanTask& task) {
  return task.queries <= kFewQueries && task.head_dim % 8 == 0;
}

// 2 x 2 results of two position pairs -> scores of two queries.
inline void store_scores(float32x4_t first, float32x4_t second, float* scores) {
  const float64x2_t a = vreinterpretq_f64_f32(first);
  const float64x2_t b = vreinterpretq_f64_f32(second);
  vst1q_f32(scores, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
  vst1q_f32(scores + kAttentionSpan, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
}

// 2 * kPairs queries x 8 positions.
template <int kPairs>
inline void few_scores(const uint16_t* q, const uint8_t* const* rows, int64_t steps, float* scores) {
  float32x4_t s[kPairs][4] = {};
  for (int64_t i = 0; i < steps; i += 2) {
    for (int p = 0; p < 4; ++p) {
      const uint16x8_t a = load_u16(rows[2 * p], 4 * i);
      const uint16x8_t b = load_u16(rows[2 * p + 1], 4 * i);
      for (int j = 0; j < kPairs; ++j) {
        s[j][p] = bf16_step(s[j][p], load_u16(q, i * 32 + j * 8), zip_low_64(a, b));
        s[j][p] = bf16_step(s[j][p], load_u16(q, i * 32 + 32 + j * 8), zip_high_64(a, b));
      }
    }
  }
  for (int j = 0; j < kPairs; ++j) {
    store_scores(s[j][0], s[j][1], scores + j * 2 * kAttentionSpan);
    store_scores(s[j][2], s[j][3], scores + j * 2 * kAttentionSpan + 4);
  }
}

// Adds `count` positions to 2 * kPairs queries x 8 * kOctets dimensions. weights, o: at the first position or octet; d:
// the first dimension.
template <int kPairs, int kOctets>
inline void few_outputs(const uint16_t* weights, const uint8_t* const* rows, int64_t d, int64_t count, float* o) {
  float32x4_t s[kOctets][kPairs][4];
  for (int c = 0; c < kOctets; ++c) {
    for (int j = 0; j < kPairs; ++j) {
      for (int i = 0; i < 4; ++i) s[c][j][i] = vld1q_f32(o + c * 64 + j * 16 + i * 4);
    }
  }
  for (int64_t p = 0; p < count; p += 4) {
    uint16x8_t weight[kPairs];
    for (int j = 0; j < kPairs; ++j) weight[j] = load_u16(weights, p * 8 + j * 8);
    for (int c = 0; c < kOctets; ++c) {
      const Transposed value = transpose(load_u16(rows[p], d + 8 * c), load_u16(rows[p + 1], d + 8 * c),
                                         load_u16(rows[p + 2], d + 8 * c), load_u16(rows[p + 3], d + 8 * c));
      for (int j = 0; j < kPairs; ++j) {
        for (int i = 0; i < 4; ++i) s[c][j][i] = bf16_step(s[c][j][i], weight[j], value.of[i]);
      }
    }
  }
  for (int c = 0; c < kOctets; ++c) {
    for (int j = 0; j < kPairs; ++j) {
      for (int i = 0; i < 4; ++i) vst1q_f32(o + c * 64 + j * 16 + i * 4, s[c][j][i]);
    }
  }
}

inline void add_values(const SpanTask& task, const FewScratch& s, const uint8_t* const* rows, int64_t count) {
  const int64_t dims = task.head_dim;
  for (int64_t i = 0; i < count; i += kFewRows) {
    const int64_t some = count - i < kFewRows ? count - i : kFewRows;
    const uint16_t* weights = s.weights + 8 * i;
    prefetch_rows<1>(rows, i + kFewPrefetchRows, i + kFewPrefetchRows + kFewRows, count, dims);
    int64_t d = 0;
    if (task.queries <= 2) {
      for (; d + 32 <= dims; d += 32) few_outputs<1, 4>(weights, rows + i, d, some, s.o + d * 8);
      for (; d < dims; d += 8) few_outputs<1, 1>(weights, rows + i, d, some, s.o + d * 8);
    } else {
      for (; d + 16 <= dims; d += 16) few_outputs<2, 2>(weights, rows + i, d, some, s.o + d * 8);
      for (; d < dims; d += 8) few_outputs<2, 1>(weights, rows + i, d, some, s.o + d * 8);
    }
  }
}

inline void run_few_bf16(const SpanTask& task) {
  const FewScratch s = few_scratch(task);
  const int64_t steps = dim_steps(task.head_dim);
  const int64_t rows = max_visible(task);
  const int64_t padded = (rows + 7) / 8 * 8;
  const uint8_t* row[kAttentionSpan];
  pack_queries(task, 0, (task.queries + 1) / 2, s.q);
  find_rows(task, task.k_pages, 0, padded, rows, row);
  const auto scores = task.queries > 2 ? few_scores<2> : few_scores<1>;
  for (int64_t p = 0; p < padded; p += 8) {
    prefetch_rows<1>(row, p + kFewPrefetchRows, p + kFewPrefetchRows + 8, padded, task.head_dim);
    scores(s.q, row + p, steps, s.scores + p);
  }
  for (int64_t i = 0; i < task.queries; i += 2) {
    query_pair_softmax(task, i, padded, s.scores + i * kAttentionSpan,
                       s.weights + in_quads(i / 2, 0, kAttentionSpan / 4));
  }
  for (int64_t i = 0; i < 8 * task.head_dim; i += 4) vst1q_f32(s.o + i, vdupq_n_f32(0));
  find_rows(task, task.v_pages, 0, padded, rows, row);
  add_values(task, s, row, padded);
  for (int64_t i = 0; i < task.queries; i += 2) {
    float* to = task.o + i * task.head_dim;
    for (int64_t d = 0; d < task.head_dim; d += 4) {
      // (query 0: two dimensions, query 1: two dimensions), twice.
      const float* from = s.o + d / 8 * 64 + i * 8 + d % 8 * 2;
      const float64x2_t a = vreinterpretq_f64_f32(vld1q_f32(from));
      const float64x2_t b = vreinterpretq_f64_f32(vld1q_f32(from + 4));
      vst1q_f32(to + d, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
      if (i + 1 < task.queries) vst1q_f32(to + task.head_dim + d, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
  }
}

}  // namespace
}  // namespace inferno
