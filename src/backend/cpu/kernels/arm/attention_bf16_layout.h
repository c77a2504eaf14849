// What both bf16 attention kernels share: the order in which the matrix instructions read queries, keys, values
// and weights.
//
// The instruction multiplies 2 x 4 by 4 x 2 values: 2 queries x 4 dimensions x 2 positions for the scores, 2 queries x
// 4 positions x 2 dimensions for the outputs. A score adds its steps of 4 dimensions in ascending order, an output its
// steps of 4 positions: nothing depends on the other queries of the block, and a weight of zero past the visible
// positions changes no bit.
#pragma once

#include "backend/cpu/kernels/arm/attention_softmax.h"
#include "backend/cpu/kernels/arm/bf16_linear.h"

namespace inferno {
namespace {

inline int64_t dim_steps(int64_t head_dim) {
  return (head_dim + 7) / 8 * 2;  // steps of 4, an even number
}
// Pairs of queries (or positions) are padded to quads, whose pairs are interleaved: loads of one step from several
// places a power of two apart would conflict in one bank of the cache. The offset of vector `step` of a pair in
// [quads][steps][4 pairs][8]:
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

// Prefetches rows [begin, end) of `count`. kLocality: 3 for L1, 1 for L3.
template <int kLocality>
inline void prefetch_rows(const uint8_t* const* rows, int64_t begin, int64_t end, int64_t count, int64_t head_dim) {
  for (int64_t p = begin; p < end && p < count; ++p) {
    for (int64_t byte = 0; byte < 2 * head_dim; byte += 64) __builtin_prefetch(rows[p] + byte, 0, kLocality);
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

// The first pairs of the quad of queries at `first` as [steps][4 pairs][2][4]; past the last query zeros.
inline void pack_queries(const SpanTask& task, int64_t first, int64_t pairs, uint16_t* q) {
  const int64_t d = task.head_dim;
  const auto put = [](float32x4_t a, float32x4_t b, uint16_t* to) {
    vst1q_u16(to, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b)));
  };
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int64_t i = first + 2 * pair;
    uint16_t* to = q + 8 * pair;
    if (i + 1 < task.queries && d % 8 == 0) {
      const float* a = span_query(task, i);
      const float* b = span_query(task, i + 1);
      for (int64_t s = 0; s < d / 4; ++s) put(vld1q_f32(a + 4 * s), vld1q_f32(b + 4 * s), to + 32 * s);
      continue;
    }
    const auto part = [&](int64_t query, int64_t s) {
      return query < task.queries ? load_some(span_query(task, query) + 4 * s, d - 4 * s) : vdupq_n_f32(0);
    };
    for (int64_t s = 0; s < dim_steps(d); ++s) put(part(i, s), part(i + 1, s), to + 32 * s);
  }
}

// Queries i and i + 1: scores [2][kAttentionSpan] -> the weights of the pair up to position `end`, and the task's m and
// l.
inline void query_pair_softmax(const SpanTask& task, int64_t i, int64_t end, const float* scores, uint16_t* weights) {
  const int32_t visible[2] = {task.visible[i], i + 1 < task.queries ? task.visible[i + 1] : 0};
  Softmax soft[2];
  pair_softmax(scores, visible, end, task.scale, weights, soft);
  for (int64_t j = 0; j < 2 && i + j < task.queries; ++j) {
    task.m[i + j] = soft[j].m;
    task.l[i + j] = soft[j].l;
  }
}

}  // namespace
}  // namespace inferno
