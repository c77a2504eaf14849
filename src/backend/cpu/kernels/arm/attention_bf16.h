// Attention over one span of a bf16 cache with the bf16 matrix instructions: 2 queries x 2 positions x 4 dimensions for
// the scores, 2 queries x 2 dimensions x 4 positions for the outputs. A score adds its steps of 4 dimensions in
// ascending order, an output its steps of 4 positions: nothing depends on the other queries of the block, and a weight
// of zero past the visible positions changes no bit.
//
// Many queries: a chunk of keys or values is brought into the instruction's order once and met by all of them. Few
// (decoding): the same on the fly.
#pragma once

#include "backend/cpu/kernels/arm/attention_common.h"
#include "backend/cpu/kernels/arm/bf16_linear.h"

namespace inferno {
namespace {

inline constexpr int64_t kBf16QueryBlock = 64;
inline constexpr int64_t kFewPairs = 2;  // up to this many pairs of queries nothing is packed
// Then memory is the limit, and rows are read a few at a time, almost in the order of their addresses.
inline constexpr int kDirectPairs = 4;      // pairs of positions
inline constexpr int64_t kDirectRows = 16;  // rows of values

inline int64_t dim_steps(int64_t head_dim) {
  return (head_dim + 7) / 8 * 2;  // steps of 4, an even number
}

// Parts of the scratch memory, all of pairs of queries.
struct Bf16Scratch {
  uint16_t* q;        // [pairs][steps][2][4]
  float* scores;      // [2 * pairs][kAttentionSpan]
  uint16_t* weights;  // [pairs][kAttentionSpan / 4][2][4]
  uint16_t* chunk;    // keys [kChunk / 2][steps][2][4], or values [kChunk / 4][dims / 2][2][4]
  float* o;           // [pairs][dims / 2][2][2]
};
inline int64_t bf16_attention_scratch(int64_t queries, int64_t head_dim) {
  const int64_t pairs = (queries + 1) / 2;
  const int64_t dims = dim_steps(head_dim) * 4;
  return pairs * (dims * 4 + kAttentionSpan * 8 + kAttentionSpan * 4 + dims * 8) + kChunk * dims * 2;
}
inline Bf16Scratch bf16_scratch(const SpanTask& task) {
  const int64_t pairs = (task.queries + 1) / 2;
  const int64_t dims = dim_steps(task.head_dim) * 4;
  Bf16Scratch s;
  s.scores = static_cast<float*>(task.scratch);
  s.o = s.scores + pairs * 2 * kAttentionSpan;
  s.q = static_cast<uint16_t*>(static_cast<void*>(s.o + pairs * 2 * dims));
  s.weights = s.q + pairs * 2 * dims;
  s.chunk = s.weights + pairs * 2 * kAttentionSpan;
  return s;
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

inline void pack_queries(const SpanTask& task, uint16_t* q) {
  const int64_t steps = dim_steps(task.head_dim);
  const auto put = [](float32x4_t v, uint16_t* to) { vst1_u16(to, vreinterpret_u16_bf16(vcvt_bf16_f32(v))); };
  for (int64_t i = 0; i < (task.queries + 1) / 2 * 2; ++i) {
    uint16_t* to = q + i / 2 * steps * 8 + i % 2 * 4;
    int64_t s = 0;
    if (i < task.queries) {
      const float* from = span_query(task, i);
      for (; 4 * s + 4 <= task.head_dim; ++s) put(vld1q_f32(from + 4 * s), to + 8 * s);
      if (4 * s < task.head_dim) {
        put(load_some(from + 4 * s, task.head_dim - 4 * s), to + 8 * s);
        ++s;
      }
    }
    for (; s < steps; ++s) put(vdupq_n_f32(0), to + 8 * s);
  }
}

// ---- scores

inline void pack_keys(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* chunk) {
  const int64_t steps = dim_steps(head_dim);
  for (int64_t p = 0; p < count; p += 2) {
    uint16_t* to = chunk + p / 2 * steps * 8;
    for (int64_t s = 0; s < steps; s += 2) {
      const uint16x8_t a = row_part(rows[p], 4 * s, head_dim);
      const uint16x8_t b = row_part(rows[p + 1], 4 * s, head_dim);
      vst1q_u16(to + 8 * s, zip_low_64(a, b));
      vst1q_u16(to + 8 * s + 8, zip_high_64(a, b));
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

// 2 * kPairs queries x 2 * kPositions positions. Packed: `chunk` at the first position pair. Not packed: their rows.
template <int kPairs, int kPositions, bool kPacked>
inline void bf16_scores(const uint16_t* q, const uint16_t* chunk, const uint8_t* const* rows, int64_t steps,
                        float* scores) {
  float32x4_t s[kPairs][kPositions] = {};
  for (int64_t i = 0; i < steps; i += 2) {
    uint16x8_t query[kPairs][2];
    for (int j = 0; j < kPairs; ++j) {
      query[j][0] = load_u16(q, (j * steps + i) * 8);
      query[j][1] = load_u16(q, (j * steps + i + 1) * 8);
    }
    for (int p = 0; p < kPositions; ++p) {
      uint16x8_t key[2];
      if constexpr (kPacked) {
        key[0] = load_u16(chunk, (p * steps + i) * 8);
        key[1] = load_u16(chunk, (p * steps + i + 1) * 8);
      } else {
        const uint16x8_t a = load_u16(rows[2 * p], 4 * i);
        const uint16x8_t b = load_u16(rows[2 * p + 1], 4 * i);
        key[0] = zip_low_64(a, b);
        key[1] = zip_high_64(a, b);
      }
      for (int j = 0; j < kPairs; ++j) {
        s[j][p] = bf16_step(s[j][p], query[j][0], key[0]);
        s[j][p] = bf16_step(s[j][p], query[j][1], key[1]);
      }
    }
  }
  for (int j = 0; j < kPairs; ++j) {
    for (int p = 0; p < kPositions; p += 2) {
      put_scores(s[j][p], s[j][p + 1], scores + j * 2 * kAttentionSpan + 2 * p);
    }
  }
}

// ---- outputs

inline void pack_values(const uint8_t* const* rows, int64_t count, int64_t head_dim, uint16_t* chunk) {
  const int64_t dims = dim_steps(head_dim) * 4;
  for (int64_t p = 0; p < count; p += 4) {
    for (int64_t d = 0; d < dims; d += 8) {
      const Transposed t = transpose(row_part(rows[p], d, head_dim), row_part(rows[p + 1], d, head_dim),
                                     row_part(rows[p + 2], d, head_dim), row_part(rows[p + 3], d, head_dim));
      for (int i = 0; i < 4; ++i) vst1q_u16(chunk + (p / 4 * dims + d + 2 * i) * 4, t.of[i]);
    }
  }
}

// Adds `count` positions to 2 * kPairs queries x 8 * kOctets dimensions of o[pairs][dims / 2][2][2].
template <int kPairs, int kOctets, bool kPacked>
inline void bf16_outputs(const uint16_t* weights, const uint16_t* chunk, const uint8_t* const* rows, int64_t d,
                         int64_t dims, int64_t count, float* o) {
  float32x4_t s[kPairs][4 * kOctets];
  for (int j = 0; j < kPairs; ++j) {
    for (int i = 0; i < 4 * kOctets; ++i) s[j][i] = vld1q_f32(o + (j * dims + d + 2 * i) * 2);
  }
  for (int64_t p = 0; p < count; p += 4) {
    uint16x8_t weight[kPairs];
    for (int j = 0; j < kPairs; ++j) weight[j] = load_u16(weights, j * kAttentionSpan * 2 + p * 2);
    for (int c = 0; c < kOctets; ++c) {
      Transposed value;
      if constexpr (kPacked) {
        for (int i = 0; i < 4; ++i) value.of[i] = load_u16(chunk, (p / 4 * dims + d + 8 * c + 2 * i) * 4);
      } else {
        value = transpose(load_u16(rows[p], d + 8 * c), load_u16(rows[p + 1], d + 8 * c),
                          load_u16(rows[p + 2], d + 8 * c), load_u16(rows[p + 3], d + 8 * c));
      }
      for (int j = 0; j < kPairs; ++j) {
        for (int i = 0; i < 4; ++i) s[j][4 * c + i] = bf16_step(s[j][4 * c + i], weight[j], value.of[i]);
      }
    }
  }
  for (int j = 0; j < kPairs; ++j) {
    for (int i = 0; i < 4 * kOctets; ++i) vst1q_f32(o + (j * dims + d + 2 * i) * 2, s[j][i]);
  }
}

inline bool is_direct(const SpanTask& task) {
  return (task.queries + 1) / 2 <= kFewPairs && task.head_dim % 8 == 0;
}

// All queries x one chunk.
inline void chunk_scores(const SpanTask& task, const Bf16Scratch& s, const uint8_t* const* rows, int64_t p,
                         int64_t count) {
  const int64_t pairs = (task.queries + 1) / 2;
  const int64_t steps = dim_steps(task.head_dim);
  const bool direct = is_direct(task);
  if (!direct) pack_keys(rows, count, task.head_dim, s.chunk);
  int64_t i = 0;
  const auto at = [&](int64_t j) { return s.scores + j * 2 * kAttentionSpan + p + i; };
  if (direct) {
    constexpr int64_t kStep = 2 * kDirectPairs;
    for (; i < count; i += kStep) {
      const auto scores = pairs == 2 ? bf16_scores<2, kDirectPairs, false> : bf16_scores<1, kDirectPairs, false>;
      scores(s.q, nullptr, rows + i, steps, at(0));
    }
    return;
  }
  for (; i < count; i += 8) {
    const uint16_t* chunk = s.chunk + i / 2 * steps * 8;
    int64_t j = 0;
    for (; j + 4 <= pairs; j += 4) bf16_scores<4, 4, true>(s.q + j * steps * 8, chunk, nullptr, steps, at(j));
    for (; j < pairs; ++j) bf16_scores<1, 4, true>(s.q + j * steps * 8, chunk, nullptr, steps, at(j));
  }
}

inline void chunk_outputs(const SpanTask& task, const Bf16Scratch& s, const uint8_t* const* rows, int64_t p,
                          int64_t count) {
  const int64_t pairs = (task.queries + 1) / 2;
  const int64_t dims = dim_steps(task.head_dim) * 4;
  const bool direct = is_direct(task);
  if (!direct) pack_values(rows, count, task.head_dim, s.chunk);
  const uint16_t* weights = s.weights + p * 2;
  if (direct) {
    for (int64_t i = 0; i < count; i += kDirectRows) {
      const int64_t some = count - i < kDirectRows ? count - i : kDirectRows;
      const uint16_t* part = weights + 2 * i;
      int64_t d = 0;
      if (pairs == 1) {
        for (; d + 32 <= dims; d += 32) bf16_outputs<1, 4, false>(part, nullptr, rows + i, d, dims, some, s.o);
        for (; d < dims; d += 8) bf16_outputs<1, 1, false>(part, nullptr, rows + i, d, dims, some, s.o);
      } else {
        for (; d + 16 <= dims; d += 16) bf16_outputs<2, 2, false>(part, nullptr, rows + i, d, dims, some, s.o);
        for (; d < dims; d += 8) bf16_outputs<2, 1, false>(part, nullptr, rows + i, d, dims, some, s.o);
      }
    }
    return;
  }
  for (int64_t d = 0; d < dims; d += 8) {
    int64_t j = 0;
    for (; j + 4 <= pairs; j += 4) {
      bf16_outputs<4, 1, true>(weights + j * kAttentionSpan * 2, s.chunk, nullptr, d, dims, count, s.o + j * dims * 2);
    }
    for (; j < pairs; ++j) {
      bf16_outputs<1, 1, true>(weights + j * kAttentionSpan * 2, s.chunk, nullptr, d, dims, count, s.o + j * dims * 2);
    }
  }
}

inline void run_bf16_attention(const SpanTask& task) noexcept {
  const Bf16Scratch s = bf16_scratch(task);
  const int64_t queries = (task.queries + 1) / 2 * 2;
  const int64_t dims = dim_steps(task.head_dim) * 4;
  const int64_t rows = most_visible(task);
  const int64_t padded = (rows + 7) / 8 * 8;
  pack_queries(task, s.q);
  const uint8_t* row[kChunk];
  for (int64_t p = 0; p < padded; p += kChunk) {
    const int64_t count = padded - p < kChunk ? padded - p : kChunk;
    find_rows(task, task.k_pages, p, count, rows, row);
    chunk_scores(task, s, row, p, count);
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* scores = s.scores + i * kAttentionSpan;
    uint16_t* weights = s.weights + i / 2 * kAttentionSpan * 2 + i % 2 * 4;
    const Softmax soft = span_softmax(
        scores, i < task.queries ? task.visible[i] : 0, padded, task.scale,
        [weights](int64_t p, float32x4_t w) { vst1_u16(weights + 2 * p, vreinterpret_u16_bf16(vcvt_bf16_f32(w))); });
    if (i >= task.queries) continue;
    task.m[i] = soft.m;
    task.l[i] = soft.l;
  }
  for (int64_t i = 0; i < queries * dims; i += 4) vst1q_f32(s.o + i, vdupq_n_f32(0));
  for (int64_t p = 0; p < padded; p += kChunk) {
    const int64_t count = padded - p < kChunk ? padded - p : kChunk;
    find_rows(task, task.v_pages, p, count, rows, row);
    chunk_outputs(task, s, row, p, count);
  }
  for (int64_t i = 0; i < task.queries; ++i) {
    for (int64_t d = 0; d < task.head_dim; d += 4) {
      // (query 0: two dimensions, query 1: two dimensions), twice.
      const float* from = s.o + (i / 2 * dims + d) * 2;
      const float64x2_t a = vreinterpretq_f64_f32(vld1q_f32(from));
      const float64x2_t b = vreinterpretq_f64_f32(vld1q_f32(from + 4));
      const float64x2_t four = i % 2 == 0 ? vzip1q_f64(a, b) : vzip2q_f64(a, b);
      store_some(task.o + i * task.head_dim + d, vreinterpretq_f32_f64(four), task.head_dim - d);
    }
  }
}

inline void set_bf16_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(KernelDType::bf16)] = {name, kBf16QueryBlock, bf16_attention_scratch,
                                                          run_bf16_attention};
}

}  // namespace
}  // namespace inferno
