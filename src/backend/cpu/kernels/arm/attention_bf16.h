// Attention over one span of a bf16 cache with the bf16 matrix instructions: 2 queries x 2 positions x 4 dimensions for
// the scores, 2 queries x 2 dimensions x 4 positions for the outputs. A score adds its steps of 4 dimensions in
// ascending order, an output its steps of 4 positions: nothing depends on the other queries of the block, and a weight
// of zero past the visible positions changes no bit.
//
// Many queries: a chunk of keys or values is brought into the instruction's order once and met by all of them, four
// pairs of queries at a time. Few (decoding): the same on the fly. What one step of the loops reads lies side by side:
// read from several places a power of two apart, the vectors would meet in one bank of the cache.
#pragma once

#include "backend/cpu/kernels/arm/assembly.h"
#include "backend/cpu/kernels/arm/attention_softmax.h"
#include "backend/cpu/kernels/arm/bf16_linear.h"

namespace inferno {
namespace {

inline constexpr int64_t kBf16QueryBlock = 128;
inline constexpr int64_t kBf16Chunk = 128;  // positions that are packed and multiplied in one go
inline constexpr int64_t kFewPairs = 2;     // up to this many pairs of queries nothing is packed
// Then memory is the limit, and rows are read a few at a time, almost in the order of their addresses.
inline constexpr int64_t kDirectRows = 16;  // rows of values

inline int64_t dim_steps(int64_t head_dim) {
  return (head_dim + 7) / 8 * 2;  // steps of 4, an even number
}

// Parts of the scratch memory. Pairs of queries are filled up to quads, whose pairs lie side by side.
struct Bf16Scratch {
  uint16_t* q;        // [quads][steps][4 pairs][2][4]
  float* scores;      // [queries][kAttentionSpan]
  uint16_t* weights;  // [quads][kAttentionSpan / 4][4 pairs][2][4]
  uint16_t* chunk;    // keys [kBf16Chunk / 8][steps][4 pairs][2][4], or values [dims / 8][kBf16Chunk / 4][4][2][4]
  float* o;           // [quads][dims / 8][4 pairs][4][2][2]
};
inline int64_t query_quads(int64_t queries) {
  return (queries + 7) / 8;
}
inline int64_t bf16_attention_scratch(int64_t queries, int64_t head_dim) {
  const int64_t padded = query_quads(queries) * 8;
  const int64_t dims = dim_steps(head_dim) * 4;
  return padded * (dims * 2 + kAttentionSpan * 4 + kAttentionSpan * 2 + dims * 4) + kBf16Chunk * dims * 2;
}
inline Bf16Scratch bf16_scratch(const SpanTask& task) {
  const int64_t padded = query_quads(task.queries) * 8;
  const int64_t dims = dim_steps(task.head_dim) * 4;
  Bf16Scratch s;
  s.scores = static_cast<float*>(task.scratch);
  s.o = s.scores + padded * kAttentionSpan;
  s.q = static_cast<uint16_t*>(static_cast<void*>(s.o + padded * dims));
  s.weights = s.q + padded * dims;
  s.chunk = s.weights + padded * kAttentionSpan;
  return s;
}
// Where vector `step` of a pair is in [quads][steps][4 pairs][8].
inline int64_t in_quads(int64_t pair, int64_t step, int64_t steps) {
  return ((pair / 4 * steps + step) * 4 + pair % 4) * 8;
}

inline uint16x8_t load_u16(const void* p, int64_t offset) {
  return vld1q_u16(static_cast<const uint16_t*>(p) + offset);
}
inline uint16x8_t zip_low_64(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
inline uint16x8_t zip_high_64(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

// Eight values of a row from dimension d; what is missing is zero.
inline uint16x8_t row_part(const uint8_t* row, int64_t d, int64_t head_dim) {
  if (d + 8 <= head_dim) return load_u16(row, d);
  uint16_t some[8] = {};
  for (int64_t i = d; i < head_dim; ++i) some[i - d] = static_cast<const uint16_t*>(static_cast<const void*>(row))[i];
  return vld1q_u16(some);
}

// Asks for rows [begin, end) of `count`: they come from a distant cache, and packing them takes little time.
inline void prefetch_rows(const uint8_t* const* rows, int64_t begin, int64_t end, int64_t count, int64_t head_dim) {
  for (int64_t p = begin; p < end && p < count; ++p) {
    for (int64_t byte = 0; byte < 2 * head_dim; byte += 64) __builtin_prefetch(rows[p] + byte);
  }
}

// Four rows, eight dimensions -> for each two dimensions the four positions of the first, then of the second.
struct Transposed {
  uint16x8_t of[4];
};
inline Transposed transpose(uint16x8_t r0, uint16x8_t r1, uint16x8_t r2, uint16x8_t r3) {
  const uint32x4_t low01 = vreinterpretq_u32_u16(vzip1q_u16(r0, r1));
  const uint32x4_t low23 = vreinterpretq_u32_u16(vzip1q_u16(r2, r3));
  const uint32x4_t high01 = vreinterpretq_u32_u16(vzip2q_u16(r0, r1));
  const uint32x4_t high23 = vreinterpretq_u32_u16(vzip2q_u16(r2, r3));
  return {{vreinterpretq_u16_u32(vzip1q_u32(low01, low23)), vreinterpretq_u16_u32(vzip2q_u32(low01, low23)),
           vreinterpretq_u16_u32(vzip1q_u32(high01, high23)), vreinterpretq_u16_u32(vzip2q_u32(high01, high23))}};
}

inline float32x4_t bf16_step(float32x4_t sum, uint16x8_t a, uint16x8_t b) {
  return vbfmmlaq_f32(sum, vreinterpretq_bf16_u16(a), vreinterpretq_bf16_u16(b));
}

// clang-format off
#define INFERNO_COLUMN(b, c0, c1, c2, c3, a0, a1, a2, a3) \
  "bfmmla v" #c0 ".4s, v" #a0 ".8h, v" #b ".8h\n bfmmla v" #c1 ".4s, v" #a1 ".8h, v" #b ".8h\n" \
  "bfmmla v" #c2 ".4s, v" #a2 ".8h, v" #b ".8h\n bfmmla v" #c3 ".4s, v" #a3 ".8h, v" #b ".8h\n"
#define INFERNO_STEP(at0, at1, at2, at3, a0, a1, a2, a3, b0, b1, b2, b3) \
  "ldr q" #a0 ", [%[a], #" #at0 "]\n ldr q" #b0 ", [%[b], #" #at0 "]\n" \
  "ldr q" #a1 ", [%[a], #" #at1 "]\n ldr q" #a2 ", [%[a], #" #at2 "]\n ldr q" #a3 ", [%[a], #" #at3 "]\n" \
  INFERNO_COLUMN(b0, 0, 4, 8, 12, a0, a1, a2, a3) \
  "ldr q" #b1 ", [%[b], #" #at1 "]\n" INFERNO_COLUMN(b1, 1, 5, 9, 13, a0, a1, a2, a3) \
  "ldr q" #b2 ", [%[b], #" #at2 "]\n" INFERNO_COLUMN(b2, 2, 6, 10, 14, a0, a1, a2, a3) \
  "ldr q" #b3 ", [%[b], #" #at3 "]\n" INFERNO_COLUMN(b3, 3, 7, 11, 15, a0, a1, a2, a3)
#define INFERNO_CLEAR \
  INFERNO_ZERO_4(0, 1, 2, 3) INFERNO_ZERO_4(4, 5, 6, 7) INFERNO_ZERO_4(8, 9, 10, 11) INFERNO_ZERO_4(12, 13, 14, 15)
// v(4i + j) += `steps` (even) steps of vector i of a times vector j of b, 4 x 4 vectors a step.
#define INFERNO_QUADS \
  ".p2align 5\n" \
  "1:\n" \
  INFERNO_STEP(0, 16, 32, 48, 16, 17, 18, 19, 24, 25, 26, 27) \
  INFERNO_STEP(64, 80, 96, 112, 20, 21, 22, 23, 28, 29, 30, 31) \
  "add %[a], %[a], #128\n add %[b], %[b], #128\n" \
  "subs %[n], %[n], #2\n" \
  "b.gt 1b\n"

// sums[4 of a][4 of b], or zero if `fresh`, plus the products. In assembly: a compiler's order of the same instructions
// takes half as long again.
inline void multiply_quads(const uint16_t* a, const uint16_t* b, int64_t steps, int64_t fresh, float32x4_t* sums) {
  __asm__ volatile(
      "cbnz %[fresh], 2f\n"
      "ldp q0, q1, [%[sums]]\n ldp q2, q3, [%[sums], #32]\n ldp q4, q5, [%[sums], #64]\n"
      "ldp q6, q7, [%[sums], #96]\n ldp q8, q9, [%[sums], #128]\n ldp q10, q11, [%[sums], #160]\n"
      "ldp q12, q13, [%[sums], #192]\n ldp q14, q15, [%[sums], #224]\n"
      "b 1f\n"
      "2:\n"
      INFERNO_CLEAR
      INFERNO_QUADS
      "stp q0, q1, [%[sums]]\n stp q2, q3, [%[sums], #32]\n stp q4, q5, [%[sums], #64]\n"
      "stp q6, q7, [%[sums], #96]\n stp q8, q9, [%[sums], #128]\n stp q10, q11, [%[sums], #160]\n"
      "stp q12, q13, [%[sums], #192]\n stp q14, q15, [%[sums], #224]\n"
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(steps)
      : [fresh] "r"(fresh), [sums] "r"(sums)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}

// The scores of 8 queries and 8 positions, each query's in a row of kAttentionSpan.
inline void score_quads(const uint16_t* a, const uint16_t* b, int64_t steps, float* scores) {
  static_assert(kAttentionSpan * sizeof(float) == 1024);
  float* row = scores;
#define INFERNO_TWO_ROWS(c0, c1, c2, c3) \
  "zip1 v16.2d, v" #c0 ".2d, v" #c1 ".2d\n zip1 v17.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "zip2 v18.2d, v" #c0 ".2d, v" #c1 ".2d\n zip2 v19.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "stp q16, q17, [%[scores]]\n add %[scores], %[scores], #1024\n" \
  "stp q18, q19, [%[scores]]\n add %[scores], %[scores], #1024\n"
  __asm__ volatile(
      INFERNO_CLEAR
      INFERNO_QUADS
      INFERNO_TWO_ROWS(0, 1, 2, 3) INFERNO_TWO_ROWS(4, 5, 6, 7)
      INFERNO_TWO_ROWS(8, 9, 10, 11) INFERNO_TWO_ROWS(12, 13, 14, 15)
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(steps), [scores] "+r"(row)
      :
      : INFERNO_ALL_VECTORS, "cc", "memory");
#undef INFERNO_TWO_ROWS
}
// clang-format on

#undef INFERNO_COLUMN
#undef INFERNO_STEP
#undef INFERNO_CLEAR
#undef INFERNO_QUADS

inline void pack_queries(const SpanTask& task, uint16_t* q) {
  constexpr int64_t kAhead = 8;  // queries: a token's heads lie together, tokens far apart in a distant cache
  const int64_t steps = dim_steps(task.head_dim);
  const auto part = [&](const float* from, int64_t s) {
    return from == nullptr ? vdupq_n_f32(0) : load_some(from + 4 * s, task.head_dim - 4 * s);
  };
  for (int64_t i = 0; i < query_quads(task.queries) * 8; i += 2) {
    const float* from[2] = {i < task.queries ? span_query(task, i) : nullptr,
                            i + 1 < task.queries ? span_query(task, i + 1) : nullptr};
    for (int64_t next = i + kAhead; next < i + kAhead + 2 && next < task.queries; ++next) {
      for (int64_t d = 0; d < task.head_dim; d += 16) __builtin_prefetch(span_query(task, next) + d);
    }
    uint16_t* to = q + in_quads(i / 2, 0, steps);
    for (int64_t s = 0; s < steps; ++s) {
      const bfloat16x8_t both = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(part(from[0], s)), part(from[1], s));
      vst1q_u16(to + 32 * s, vreinterpretq_u16_bf16(both));
    }
  }
}

// ---- scores

inline void pack_keys(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* chunk) {
  const int64_t steps = dim_steps(head_dim);
  for (int64_t p = 0; p < count; p += 8) {
    prefetch_rows(rows, p + 8, p + 16, count, head_dim);
    uint16_t* to = chunk + in_quads(p / 2, 0, steps);
    for (int64_t s = 0; s < steps; s += 2) {
      for (int i = 0; i < 4; ++i) {
        const uint16x8_t a = row_part(rows[p + 2 * i], 4 * s, head_dim);
        const uint16x8_t b = row_part(rows[p + 2 * i + 1], 4 * s, head_dim);
        vst1q_u16(to + 32 * s + 8 * i, zip_low_64(a, b));
        vst1q_u16(to + 32 * s + 32 + 8 * i, zip_high_64(a, b));
      }
    }
  }
}

// 2 x 2 results of two position pairs -> scores of two queries.
inline void put_scores(float32x4_t first, float32x4_t second, float* scores) {
  const float64x2_t a = vreinterpretq_f64_f32(first);
  const float64x2_t b = vreinterpretq_f64_f32(second);
  vst1q_f32(scores, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
  vst1q_f32(scores + kAttentionSpan, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
}

// 2 * kPairs queries x 8 positions.
template <int kPairs>
inline void direct_scores(const uint16_t* q, const uint8_t* const* rows, int64_t steps, float* scores) {
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
    put_scores(s[j][0], s[j][1], scores + j * 2 * kAttentionSpan);
    put_scores(s[j][2], s[j][3], scores + j * 2 * kAttentionSpan + 4);
  }
}

// ---- outputs

inline void pack_values(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* chunk) {
  const int64_t dims = dim_steps(head_dim) * 4;
  for (int64_t p = 0; p < count; p += 4) {
    prefetch_rows(rows, p + 8, p + 12, count, head_dim);
    for (int64_t d = 0; d < dims; d += 8) {
      const Transposed t = transpose(row_part(rows[p], d, head_dim), row_part(rows[p + 1], d, head_dim),
                                     row_part(rows[p + 2], d, head_dim), row_part(rows[p + 3], d, head_dim));
      for (int i = 0; i < 4; ++i) vst1q_u16(chunk + (d / 8 * (kBf16Chunk / 4) + p / 4) * 32 + 8 * i, t.of[i]);
    }
  }
}

// Adds `count` positions to 2 * kPairs queries x 8 * kOctets dimensions. weights, o: at the first position or octet; d:
// the first dimension.
template <int kPairs, int kOctets>
inline void direct_outputs(const uint16_t* weights, const uint8_t* const* rows, int64_t d, int64_t count, float* o) {
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

inline bool is_direct(const SpanTask& task) {
  return (task.queries + 1) / 2 <= kFewPairs && task.head_dim % 8 == 0;
}

// The positions any query of a quad sees, in steps of 8: the rest of a block's rectangle would be multiplied for
// nothing.
inline int64_t quad_limit(const SpanTask& task, int64_t quad) {
  int64_t most = 0;
  for (int64_t i = 8 * quad; i < 8 * quad + 8 && i < task.queries; ++i) {
    most = task.visible[i] > most ? task.visible[i] : most;
  }
  return (most + 7) / 8 * 8;
}

// All queries x one chunk.
inline void chunk_scores(const SpanTask& task, const Bf16Scratch& s, const uint8_t* const* rows, int64_t p,
                         int64_t count) {
  const int64_t steps = dim_steps(task.head_dim);
  if (is_direct(task)) {
    const auto scores = task.queries > 2 ? direct_scores<2> : direct_scores<1>;
    for (int64_t i = 0; i < count; i += 8) scores(s.q, rows + i, steps, s.scores + p + i);
    return;
  }
  pack_keys(rows, count, task.head_dim, s.chunk);
  for (int64_t quad = 0; quad < query_quads(task.queries); ++quad) {
    const uint16_t* q = s.q + in_quads(4 * quad, 0, steps);
    float* scores = s.scores + quad * 8 * kAttentionSpan + p;
    const int64_t limit = quad_limit(task, quad) - p;
    for (int64_t i = 0; i < count && i < limit; i += 8) {
      score_quads(q, s.chunk + in_quads(i / 2, 0, steps), steps, scores + i);
    }
  }
}

inline void chunk_outputs(const SpanTask& task, const Bf16Scratch& s, const uint8_t* const* rows, int64_t p,
                          int64_t count) {
  const int64_t dims = dim_steps(task.head_dim) * 4;
  const uint16_t* weights = s.weights + p * 8;
  if (is_direct(task)) {
    for (int64_t i = 0; i < count; i += kDirectRows) {
      const int64_t some = count - i < kDirectRows ? count - i : kDirectRows;
      const uint16_t* part = weights + 8 * i;
      int64_t d = 0;
      if (task.queries <= 2) {
        for (; d + 32 <= dims; d += 32) direct_outputs<1, 4>(part, rows + i, d, some, s.o + d * 8);
        for (; d < dims; d += 8) direct_outputs<1, 1>(part, rows + i, d, some, s.o + d * 8);
      } else {
        for (; d + 16 <= dims; d += 16) direct_outputs<2, 2>(part, rows + i, d, some, s.o + d * 8);
        for (; d < dims; d += 8) direct_outputs<2, 1>(part, rows + i, d, some, s.o + d * 8);
      }
    }
    return;
  }
  pack_values(rows, count, task.head_dim, s.chunk);
  for (int64_t quad = 0; quad < query_quads(task.queries); ++quad) {
    const uint16_t* part = weights + quad * kAttentionSpan * 8;
    float* o = s.o + quad * 8 * dims;
    const int64_t limit = quad_limit(task, quad) - p;
    const int64_t positions = limit < count ? limit : count;
    for (int64_t d = 0; d < dims && positions > 0; d += 8) {
      auto* sums = static_cast<float32x4_t*>(static_cast<void*>(o + d * 8));
      multiply_quads(part, s.chunk + d * kBf16Chunk, positions / 4, p == 0 ? 1 : 0, sums);
    }
  }
}

inline void run_bf16_attention(const SpanTask& task) noexcept {
  const Bf16Scratch s = bf16_scratch(task);
  const int64_t steps = dim_steps(task.head_dim);
  const int64_t dims = steps * 4;
  const int64_t rows = most_visible(task);
  const int64_t padded = (rows + 7) / 8 * 8;
  pack_queries(task, s.q);
  const uint8_t* row[kBf16Chunk];
  for (int64_t p = 0; p < padded; p += kBf16Chunk) {
    const int64_t count = padded - p < kBf16Chunk ? padded - p : kBf16Chunk;
    find_rows(task, task.k_pages, p, count, rows, row);
    chunk_scores(task, s, row, p, count);
  }
  for (int64_t i = 0; i < task.queries; i += 2) {
    const int32_t visible[2] = {task.visible[i], i + 1 < task.queries ? task.visible[i + 1] : 0};
    Softmax soft[2];
    const int64_t end = is_direct(task) ? padded : quad_limit(task, i / 8);
    pair_softmax(s.scores + i * kAttentionSpan, visible, end, task.scale,
                 s.weights + in_quads(i / 2, 0, kAttentionSpan / 4), soft);
    for (int64_t j = 0; j < 2 && i + j < task.queries; ++j) {
      task.m[i + j] = soft[j].m;
      task.l[i + j] = soft[j].l;
    }
  }
  const int64_t pairs = is_direct(task) ? (task.queries + 1) / 2 : 4 * query_quads(task.queries);
  for (int64_t pair = (task.queries + 1) / 2; pair < pairs; ++pair) {
    uint16_t* weights = s.weights + in_quads(pair, 0, kAttentionSpan / 4);
    for (int64_t p = 0; p < padded; p += 4) vst1q_u16(weights + 8 * p, vdupq_n_u16(0));
  }
  for (int64_t quad = 0; quad < query_quads(task.queries); ++quad) {
    if (!is_direct(task) && quad_limit(task, quad) > 0) continue;
    for (int64_t i = 0; i < 8 * dims; i += 4) vst1q_f32(s.o + quad * 8 * dims + i, vdupq_n_f32(0));
  }
  for (int64_t p = 0; p < padded; p += kBf16Chunk) {
    const int64_t count = padded - p < kBf16Chunk ? padded - p : kBf16Chunk;
    find_rows(task, task.v_pages, p, count, rows, row);
    chunk_outputs(task, s, row, p, count);
  }
  for (int64_t i = 0; i < task.queries; i += 2) {
    const int64_t pair = i / 2;
    float* to = task.o + i * task.head_dim;
    for (int64_t d = 0; d < task.head_dim; d += 4) {
      // (query 0: two dimensions, query 1: two dimensions), twice.
      const float* from = s.o + ((pair / 4 * dims + d / 8 * 8) * 4 + pair % 4 * 8 + d % 8) * 2;
      const float64x2_t a = vreinterpretq_f64_f32(vld1q_f32(from));
      const float64x2_t b = vreinterpretq_f64_f32(vld1q_f32(from + 4));
      store_some(to + d, vreinterpretq_f32_f64(vzip1q_f64(a, b)), task.head_dim - d);
      if (i + 1 == task.queries) continue;
      store_some(to + task.head_dim + d, vreinterpretq_f32_f64(vzip2q_f64(a, b)), task.head_dim - d);
    }
  }
}

inline void set_bf16_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(KernelDType::bf16)] = {name, kBf16QueryBlock, bf16_attention_scratch,
                                                          run_bf16_attention};
}

}  // namespace
}  // namespace inferno
