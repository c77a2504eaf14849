// Attention of many queries over one span of a bf16 cache: the span's keys and values are packed once for the matrix
// instructions and multiplied by all queries, a quad of pairs at a time: what the eight need - queries, scores, weights
// - stays in L1, keys and values are streamed from L2.
#pragma once

#include "backend/cpu/kernels/arm/attention_bf16_quads.h"

namespace inferno {
namespace {

// Values of one octet of dimensions, padded by a line, or all octets would conflict in a few sets of the cache.
inline constexpr int64_t kOctetValues = kAttentionSpan * 8 + 32;

struct ManyScratch {
  float* scores;      // [8][kAttentionSpan]
  float* o;           // [8][8], for quads that are not full
  uint16_t* q;        // [steps][4 pairs][2][4]
  uint16_t* weights;  // [kAttentionSpan / 4][4 pairs][2][4]
  uint16_t* keys;     // [kAttentionSpan / 8][steps][4 pairs][2][4]
  uint16_t* values;   // [dims / 8][kOctetValues]: [kAttentionSpan / 4][4][2][4] each
};
inline int64_t many_scratch_bytes(int64_t head_dim) {
  const int64_t dims = dim_steps(head_dim) * 4;
  return (8 * kAttentionSpan + 8 * 8) * 4 +
         (8 * dims + 8 * kAttentionSpan + kAttentionSpan * dims + dims / 8 * kOctetValues) * 2;
}
inline ManyScratch many_scratch(const SpanTask& task) {
  const int64_t dims = dim_steps(task.head_dim) * 4;
  ManyScratch s;
  s.scores = static_cast<float*>(task.scratch);
  s.o = s.scores + 8 * kAttentionSpan;
  s.q = static_cast<uint16_t*>(static_cast<void*>(s.o + 8 * 8));
  s.weights = s.q + 8 * dims;
  s.keys = s.weights + 8 * kAttentionSpan;
  s.values = s.keys + kAttentionSpan * dims;
  return s;
}

// Eight values of a row from dimension d; what is missing is zero. kWhole: head_dim is a multiple of 8.
template <bool kWhole>
inline uint16x8_t row_part(const uint8_t* row, int64_t d, int64_t head_dim) {
  if (kWhole || d + 8 <= head_dim) return load_u16(row, d);
  uint16_t some[8] = {};
  for (int64_t i = d; i < head_dim; ++i) some[i - d] = static_cast<const uint16_t*>(static_cast<const void*>(row))[i];
  return vld1q_u16(some);
}

template <bool kWhole>
inline void pack_keys(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* keys) {
  const int64_t steps = dim_steps(head_dim);
  for (int64_t p = 0; p < count; p += 8) {
    prefetch_rows<3>(rows, p + 8, p + 16, count, head_dim);
    uint16_t* to = keys + in_quads(p / 2, 0, steps);
    for (int64_t s = 0; s < steps; s += 2) {
      for (int i = 0; i < 4; ++i) {
        const uint16x8_t a = row_part<kWhole>(rows[p + 2 * i], 4 * s, head_dim);
        const uint16x8_t b = row_part<kWhole>(rows[p + 2 * i + 1], 4 * s, head_dim);
        vst1q_u16(to + 32 * s + 8 * i, zip_low_64(a, b));
        vst1q_u16(to + 32 * s + 32 + 8 * i, zip_high_64(a, b));
      }
    }
  }
}

template <bool kWhole>
inline void pack_values(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* values) {
  const int64_t dims = dim_steps(head_dim) * 4;
  for (int64_t p = 0; p < count; p += 4) {
    prefetch_rows<3>(rows, p + 8, p + 12, count, head_dim);
    for (int64_t d = 0; d < dims; d += 8) {
      const Transposed t =
          transpose(row_part<kWhole>(rows[p], d, head_dim), row_part<kWhole>(rows[p + 1], d, head_dim),
                    row_part<kWhole>(rows[p + 2], d, head_dim), row_part<kWhole>(rows[p + 3], d, head_dim));
      for (int i = 0; i < 4; ++i) vst1q_u16(values + d / 8 * kOctetValues + 8 * p + 8 * i, t.of[i]);
    }
  }
}

template <bool kWhole>
inline void pack_span(const SpanTask& task, int64_t rows, int64_t padded, const ManyScratch& s) {
  const uint8_t* row[kAttentionSpan];
  find_rows(task, task.k_pages, 0, padded, rows, row);
  pack_keys<kWhole>(row, padded, task.head_dim, s.keys);
  find_rows(task, task.v_pages, 0, padded, rows, row);
  pack_values<kWhole>(row, padded, task.head_dim, s.values);
}

inline void prefetch_queries(const SpanTask& task, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end && i < task.queries; ++i) {
    for (int64_t d = 0; d < task.head_dim; d += 16) __builtin_prefetch(span_query(task, i) + d);
  }
}

// The positions any query of the quad at `first` sees, in steps of 8: the rest of a block's rectangle would be
// wasted work.
inline int64_t quad_limit(const SpanTask& task, int64_t first) {
  int64_t most = 0;
  for (int64_t i = first; i < first + 8 && i < task.queries; ++i) {
    most = task.visible[i] > most ? task.visible[i] : most;
  }
  return (most + 7) / 8 * 8;
}

// The softmax of the quad of queries at `first`, scores [8][kAttentionSpan], over `limit` positions.
inline void query_quad_softmax(const SpanTask& task, int64_t first, int64_t limit, const float* scores,
                               uint16_t* weights) {
  for (int64_t pair = 0; pair < 4; ++pair) {
    const int64_t i = first + 2 * pair;
    uint16_t* to = weights + in_quads(pair, 0, kAttentionSpan / 4);
    if (i < task.queries) {
      query_pair_softmax(task, i, limit, scores + 2 * pair * kAttentionSpan, to);
    } else {
      for (int64_t p = 0; p < limit; p += 4) vst1q_u16(to + 8 * p, vdupq_n_u16(0));
    }
  }
}

// Outputs of the quad of queries at `first`, dimensions [8 octet, 8 octet + 8).
inline void quad_outputs(const SpanTask& task, int64_t first, int64_t limit, int64_t octet, const ManyScratch& s) {
  const int64_t d = task.head_dim;
  const bool whole = first + 8 <= task.queries && 8 * octet + 8 <= d;
  float* o = whole ? task.o + first * d + 8 * octet : s.o;
  const int64_t stride = whole ? d : 8;
  if (limit > 0) {
    multiply_quads(s.weights, s.values + octet * kOctetValues, limit / 4, o, stride);
  } else {
    for (int64_t i = 0; i < 16; ++i) vst1q_f32(o + i / 2 * stride + i % 2 * 4, vdupq_n_f32(0));
  }
  if (whole) return;
  for (int64_t i = 0; i < 8 && first + i < task.queries; ++i) {
    for (int64_t j = 0; j < 8 && 8 * octet + j < d; j += 4) {
      store_some(task.o + (first + i) * d + 8 * octet + j, vld1q_f32(o + i * 8 + j), d - 8 * octet - j);
    }
  }
}

inline void run_many_bf16(const SpanTask& task) {
  const ManyScratch s = many_scratch(task);
  const int64_t steps = dim_steps(task.head_dim);
  const int64_t rows = max_visible(task);
  const int64_t padded = (rows + 7) / 8 * 8;
  prefetch_queries(task, 0, 8);
  (task.head_dim % 8 == 0 ? pack_span<true> : pack_span<false>)(task, rows, padded, s);
  for (int64_t first = 0; first < task.queries; first += 8) {
    const int64_t limit = quad_limit(task, first);
    pack_queries(task, first, 4, s.q);
    prefetch_queries(task, first + 8, first + 16);  // tokens are far apart, in L2 or beyond
    for (int64_t p = 0; p < limit; p += 8) {
      multiply_quads(s.q, s.keys + in_quads(p / 2, 0, steps), steps, s.scores + p, kAttentionSpan);
    }
    query_quad_softmax(task, first, limit, s.scores, s.weights);
    for (int64_t octet = 0; octet < steps / 2; ++octet) quad_outputs(task, first, limit, octet, s);
  }
}

}  // namespace
}  // namespace inferno
