// Attention of many queries over one span of a bf16 cache: the span's keys and values are packed once for the matrix
// instructions and multiplied by all queries, a quad of pairs at a time: what the eight need - queries, scores, weights
// - stays in L1, keys and values are streamed from L2.
#pragma once

#include "backend/cpu/kernels/arm/assembly.h"
#include "backend/cpu/kernels/arm/attention_bf16_layout.h"

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

// clang-format off
#define INFERNO_BF16(c, a, b) "bfmmla v" #c ".4s, v" #a ".8h, v" #b ".8h\n"
// Two steps of 4 x 4 vectors of a and b, in the order of a search (bench/ladder/order_search).
#define INFERNO_TWO_STEPS(early, late) \
  late(INFERNO_BF16(12, 19, 31) INFERNO_BF16(5, 16, 21) INFERNO_BF16(13, 19, 21) INFERNO_BF16(6, 16, 17) \
  INFERNO_LOAD(28, b, -48) INFERNO_BF16(5, 27, 28) INFERNO_BF16(12, 23, 26) INFERNO_LOAD(29, b, -32) \
  INFERNO_BF16(11, 22, 20) INFERNO_BF16(0, 24, 26) INFERNO_LOAD(30, a, -32) INFERNO_BF16(14, 23, 29) \
  INFERNO_BF16(1, 18, 21)) early(INFERNO_LOAD(16, a, 16) INFERNO_LOAD(31, b, 0) INFERNO_LOAD(17, b, 32)) \
  late(INFERNO_BF16(4, 27, 26) INFERNO_BF16(2, 24, 29)) early(INFERNO_LOAD(18, a, 0)) late(INFERNO_BF16(6, 27, 29) \
  INFERNO_BF16(13, 23, 28)) early(INFERNO_BF16(2, 18, 17) INFERNO_BF16(4, 16, 31)) late(INFERNO_BF16(3, 24, 25) \
  INFERNO_BF16(15, 23, 25) INFERNO_BF16(7, 27, 25)) early(INFERNO_LOAD(19, a, 48)) late(INFERNO_BF16(1, 24, 28)) \
  early(INFERNO_LOAD(20, b, 48) INFERNO_BF16(15, 19, 20)) late(INFERNO_BF16(10, 30, 29) INFERNO_BF16(8, 30, 26)) \
  early(INFERNO_BF16(3, 18, 20)) late(INFERNO_BF16(9, 30, 28)) early(INFERNO_BF16(7, 16, 20) INFERNO_BF16(0, 18, 31) \
  INFERNO_BF16(14, 19, 17) INFERNO_LOAD(21, b, 16) INFERNO_LOAD(22, a, 32) INFERNO_BF16(10, 22, 17)) \
  late(INFERNO_BF16(11, 30, 25)) early(INFERNO_LOAD(23, a, 112) INFERNO_BF16(9, 22, 21) INFERNO_LOAD(24, a, 64) \
  INFERNO_LOAD(25, b, 112) INFERNO_LOAD(26, b, 64) INFERNO_BF16(8, 22, 31) INFERNO_LOAD(27, a, 80))
#define INFERNO_TWO_ROWS(c0, c1, c2, c3) \
  "zip1 v16.2d, v" #c0 ".2d, v" #c1 ".2d\n zip1 v17.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "zip2 v18.2d, v" #c0 ".2d, v" #c1 ".2d\n zip2 v19.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "stp q16, q17, [%[out]]\n add %[out], %[out], %[stride]\n" \
  "stp q18, q19, [%[out]]\n add %[out], %[out], %[stride]\n"

// out[8][8] = a * b, both [steps][4 pairs][2][4], `steps` even; rows of out are `stride` floats apart. In assembly: a
// compiler's order of the same instructions takes half as long again.
inline void multiply_quads(const uint16_t* a, const uint16_t* b, int64_t steps, float* out, int64_t stride) {
  float* row = out;
  int64_t rounds = steps / 2;
  __asm__ volatile(
      INFERNO_ZERO_4(0, 1, 2, 3) INFERNO_ZERO_4(4, 5, 6, 7) INFERNO_ZERO_4(8, 9, 10, 11) INFERNO_ZERO_4(12, 13, 14, 15)
      INFERNO_ROUNDS(INFERNO_TWO_STEPS, "add %[a], %[a], #128\n add %[b], %[b], #128\n")
      INFERNO_TWO_ROWS(0, 1, 2, 3) INFERNO_TWO_ROWS(4, 5, 6, 7)
      INFERNO_TWO_ROWS(8, 9, 10, 11) INFERNO_TWO_ROWS(12, 13, 14, 15)
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(rounds), [out] "+r"(row)
      : [stride] "r"(stride * 4)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}
// clang-format on

#undef INFERNO_BF16
#undef INFERNO_TWO_STEPS
#undef INFERNO_TWO_ROWS

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
