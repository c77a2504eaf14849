// Attention over one span with f32 arithmetic: caches of f32, f16 and q8_0, and bf16 where the CPU has no bf16
// instructions (then queries and weights are rounded to bf16 first). Keys and values are widened a chunk at a time and
// shared by all queries of the block. A score is one chain in ascending dimension, an output one chain in ascending
// position: as in the scalar table, whose results differ only by its exp.
#pragma once

#include "backend/cpu/kernels/arm/attention_common.h"
#include "backend/cpu/kernels/arm/vector_ops.h"

namespace inferno {
namespace {

inline constexpr int64_t kF32QueryBlock = 32;

inline int64_t padded_dim(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

inline int64_t f32_attention_scratch(int64_t queries, int64_t head_dim) {
  const int64_t blocks = (queries + 3) / 4 * 4;
  // queries, scores, one chunk (keys by dimension or values by position), four rows, outputs
  return (blocks * padded_dim(head_dim) * 2 + blocks * kAttentionSpan + (kChunk + 4) * padded_dim(head_dim)) * 4;
}

template <DType kType>
inline void widen_row(const uint8_t* row, float* out, int64_t n) {
  if constexpr (kType == DType::f32) {
    const auto* from = static_cast<const float*>(static_cast<const void*>(row));
    for (int64_t i = 0; i < n; i += 4) store_some(out + i, load_some(from + i, n - i), n - i);
  } else if constexpr (kType == DType::f16) {
    load_f16_row(row, out, n);
  } else if constexpr (kType == DType::bf16) {
    load_bf16_row(row, out, n);
  } else {
    load_q8_0_row(row, out, n);
  }
}

// chunk[d][kChunk]: the keys by dimension; four[4][stride] is memory for four rows. count is a multiple of 4.
template <DType kType>
inline void load_keys(const uint8_t* const* rows, int64_t count, int64_t head_dim, float* four, float* chunk) {
  const int64_t stride = padded_dim(head_dim);
  for (int64_t p = 0; p < count; p += 4) {
    for (int r = 0; r < 4; ++r) widen_row<kType>(rows[p + r], four + r * stride, head_dim);
    for (int64_t d = 0; d < head_dim; d += 4) {
      const float32x4x2_t a = vzipq_f32(vld1q_f32(four + d), vld1q_f32(four + 2 * stride + d));
      const float32x4x2_t b = vzipq_f32(vld1q_f32(four + stride + d), vld1q_f32(four + 3 * stride + d));
      float* to = chunk + d * kChunk + p;
      vst1q_f32(to, vzip1q_f32(a.val[0], b.val[0]));
      vst1q_f32(to + kChunk, vzip2q_f32(a.val[0], b.val[0]));
      vst1q_f32(to + 2 * kChunk, vzip1q_f32(a.val[1], b.val[1]));
      vst1q_f32(to + 3 * kChunk, vzip2q_f32(a.val[1], b.val[1]));
    }
  }
}

// scores[4][kAttentionSpan] of 4 queries and 16 positions of the chunk.
inline void score_tile(const float* q, int64_t stride, const float* chunk, int64_t head_dim, float* scores) {
  float32x4_t s[4][4] = {};
  for (int64_t d = 0; d < head_dim; ++d) {
    float32x4_t k[4];
    for (int j = 0; j < 4; ++j) k[j] = vld1q_f32(chunk + d * kChunk + 4 * j);
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) s[i][j] = vfmaq_n_f32(s[i][j], k[j], q[i * stride + d]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) vst1q_f32(scores + i * kAttentionSpan + 4 * j, s[i][j]);
  }
}

// Adds `count` positions to o[4][stride], 16 dimensions.
inline void output_tile(const float* weights, const float* chunk, int64_t stride, int64_t count, float* o) {
  float32x4_t s[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) s[i][j] = vld1q_f32(o + i * stride + 4 * j);
  }
  for (int64_t p = 0; p < count; ++p) {
    float32x4_t v[4];
    for (int j = 0; j < 4; ++j) v[j] = vld1q_f32(chunk + p * stride + 4 * j);
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) s[i][j] = vfmaq_n_f32(s[i][j], v[j], weights[i * kAttentionSpan + p]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) vst1q_f32(o + i * stride + 4 * j, s[i][j]);
  }
}

template <DType kType>
inline void run_f32_attention(const SpanTask& task) noexcept {
  const int64_t d = task.head_dim;
  const int64_t stride = padded_dim(d);
  const int64_t queries = (task.queries + 3) / 4 * 4;
  const int64_t rows = max_visible(task);
  const int64_t padded = (rows + 15) / 16 * 16;
  auto* q = static_cast<float*>(task.scratch);
  float* o = q + queries * stride;
  float* scores = o + queries * stride;
  float* chunk = scores + queries * kAttentionSpan;
  const auto rounded = [](float32x4_t v) { return kType == DType::bf16 ? round_to_bf16(v) : v; };
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < stride; j += 4) {
      const bool some = i < task.queries && j < d;
      const float32x4_t v = some ? load_some(span_query(task, i) + j, d - j) : vdupq_n_f32(0);
      vst1q_f32(q + i * stride + j, rounded(v));
      vst1q_f32(o + i * stride + j, vdupq_n_f32(0));
    }
  }
  const uint8_t* row[kChunk];
  for (int64_t p = 0; p < padded; p += kChunk) {
    const int64_t count = padded - p < kChunk ? padded - p : kChunk;
    find_rows(task, task.k_pages, p, count, rows, row);
    load_keys<kType>(row, count, d, chunk + kChunk * stride, chunk);
    for (int64_t i = 0; i < queries; i += 4) {
      for (int64_t j = 0; j < count; j += 16) {
        score_tile(q + i * stride, stride, chunk + j, d, scores + i * kAttentionSpan + p + j);
      }
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* s = scores + i * kAttentionSpan;
    const Softmax soft = span_softmax(s, i < task.queries ? task.visible[i] : 0, padded, task.scale,
                                      [&](int64_t p, float32x4_t weights) { vst1q_f32(s + p, rounded(weights)); });
    if (i >= task.queries) continue;
    task.m[i] = soft.m;
    task.l[i] = soft.l;
  }
  for (int64_t p = 0; p < rows; p += kChunk) {
    const int64_t count = rows - p < kChunk ? rows - p : kChunk;
    find_rows(task, task.v_pages, p, count, rows, row);
    for (int64_t i = 0; i < count; ++i) widen_row<kType>(row[i], chunk + i * stride, d);
    for (int64_t i = 0; i < queries; i += 4) {
      for (int64_t j = 0; j < d; j += 16) {
        output_tile(scores + i * kAttentionSpan + p, chunk + j, stride, count, o + i * stride + j);
      }
    }
  }
  for (int64_t i = 0; i < task.queries; ++i) {
    for (int64_t j = 0; j < d; j += 4) store_some(task.o + i * d + j, vld1q_f32(o + i * stride + j), d - j);
  }
}

template <DType kType>
inline void set_f32_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(kType)] = {name, kF32QueryBlock, f32_attention_scratch, run_f32_attention<kType>};
}

}  // namespace
}  // namespace inferno
