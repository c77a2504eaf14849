// Attention of a few queries over one span of a bf16 cache: decode, which reads the cache from memory and should do
// little else. The same bits as with many queries (amx_attention.h), so a query's result does not depend on how many
// there are.
//
// Scores come from the matrix tiles, whose left side is rows of the cache as they are; the right side has a column per
// query. Values are multiplied in vectors, dimensions side by side, in the order of a tile product: of each 32
// positions a chain of the even ones and one of the odd ones, each from zero; their sum is added to that of the
// positions before. Like the tiles, that part takes subnormals for zero.
#pragma once

#include "backend/cpu/kernels/x86/amx_attention_parts.h"

namespace inferno {
namespace {

inline constexpr int64_t kScoreTiles = 4;  // that are multiplied together

struct FewSpanMemory {
  uint8_t* queries;  // [d / 32][16 pairs of dimensions][4 queries][2] bf16
  uint8_t* keys;     // [4][16][d] bf16: tiles whose rows are not equally spaced in the cache
  float* scores;     // [256 positions][4 queries], then the weights
  float* rounded;    // the same, weights rounded to bf16
  float* out;        // [4 queries][d], of each 32 dimensions the even ones first
};
inline FewSpanMemory few_span_memory(void* scratch, int64_t head_dim) {
  FewSpanMemory m;
  auto* at = static_cast<uint8_t*>(scratch);
  m.queries = at;
  at += head_dim * kFewQueries * 2;
  m.keys = at;
  at += kScoreTiles * kTilePositions * head_dim * 2;
  m.scores = as<float>(at);
  at += kAttentionSpan * kFewQueries * 4;
  m.rounded = as<float>(at);
  at += kAttentionSpan * kFewQueries * 4;
  m.out = as<float>(at);
  return m;
}
inline int64_t few_span_bytes(int64_t head_dim) {
  return head_dim * (kFewQueries * 6 + kScoreTiles * kTilePositions * 2) + kAttentionSpan * kFewQueries * 8;
}

// Tiles 0-3: scores of 16 positions; 4, 5: 16 rows of keys; 6, 7: queries.
inline void configure_few_tiles() {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = 16;
    config.row_bytes[i] = i == 4 || i == 5 ? 64 : kFewQueries * 4;
  }
  load_tile_config(config);
}

inline void pack_few_queries(const SpanTask& task, uint8_t* to) {
  for (int64_t d = 0; d < task.head_dim; d += kTileDims, to += 16 * kFewQueries * 4) {
    __m512i v[kFewQueries];
    for (int64_t i = 0; i < kFewQueries; ++i) {
      v[i] = i < task.queries ? query_pairs(span_query(task, i) + d) : _mm512_setzero_si512();
    }
    // Of each four pairs, one after the other: the four queries.
    const __m512i low[2] = {_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpacklo_epi32(v[2], v[3])};
    const __m512i high[2] = {_mm512_unpackhi_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[2], v[3])};
    const __m512i fours[4] = {_mm512_unpacklo_epi64(low[0], low[1]), _mm512_unpackhi_epi64(low[0], low[1]),
                              _mm512_unpacklo_epi64(high[0], high[1]), _mm512_unpackhi_epi64(high[0], high[1])};
    for (int i = 0; i < 4; ++i) {
      store_128(to + 16 * i, _mm512_extracti32x4_epi32(fours[i], 0));
      store_128(to + 16 * (4 + i), _mm512_extracti32x4_epi32(fours[i], 1));
      store_128(to + 16 * (8 + i), _mm512_extracti32x4_epi32(fours[i], 2));
      store_128(to + 16 * (12 + i), _mm512_extracti32x4_epi32(fours[i], 3));
    }
  }
}

// Prefetches a part of the rows of 16 positions, one of `parts`.
[[gnu::always_inline]] inline void prefetch_rows(const uint8_t* rows, int64_t row_bytes, int64_t part, int64_t parts) {
  const int64_t bytes = kTilePositions * row_bytes / parts;
  for (int64_t i = part * bytes; i < (part + 1) * bytes; i += 64) _mm_prefetch(rows + i, _MM_HINT_T1);
}

// Scores of positions [0, rows) in whole tiles. Four distant tiles at a time, mostly of different pages: a core reads
// several streams faster than one.
inline void few_scores(const SpanTask& task, int64_t rows, const FewSpanMemory& m, NextRows& next) {
  const int64_t d = task.head_dim;
  const int64_t tiles = (rows + kTilePositions - 1) / kTilePositions;
  const int64_t apart = (tiles + kScoreTiles - 1) / kScoreTiles;
  const int64_t steps = d / kTileDims;
  for (int64_t tile = 0; tile < apart; ++tile) {
    KeyTile keys[kScoreTiles];
    const uint8_t* values[kScoreTiles];
    for (int64_t i = 0; i < kScoreTiles; ++i) {
      // The first again where none is left: its scores are written twice.
      const int64_t p = (tile + i * apart < tiles ? tile + i * apart : tile) * kTilePositions;
      keys[i] = key_tile(task, p, rows, m.keys + i * kTilePositions * d * 2);
      find_rows(task, task.v_pages, p, 1, rows, &values[i]);
    }
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; ++step) {
      if (!task.prefetched) {
        for (int64_t i = 0; i < kScoreTiles; ++i) {
          prefetch_rows(keys[i].at + kTilePositions * keys[i].stride, task.row_bytes, step, steps);
          prefetch_rows(values[i], task.row_bytes, step, steps);
        }
      }
      next.prefetch(32);
      _tile_loadd(6, m.queries + 16 * kFewQueries * 4 * step, kFewQueries * 4);
      _tile_loadd(4, keys[0].at + 64 * step, keys[0].stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, keys[1].at + 64 * step, keys[1].stride);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(4, keys[2].at + 64 * step, keys[2].stride);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(5, keys[3].at + 64 * step, keys[3].stride);
      _tile_dpbf16ps(3, 5, 6);
    }
    const auto scores = [&](int64_t i) {
      return m.scores + (tile + i * apart < tiles ? tile + i * apart : tile) * kTilePositions * kFewQueries;
    };
    constexpr int64_t kStride = kFewQueries * 4;
    _tile_stored(3, scores(3), kStride);
    _tile_stored(2, scores(2), kStride);
    _tile_stored(1, scores(1), kStride);
    _tile_stored(0, scores(0), kStride);
  }
}

// Scores -> weights e^(scale * (score - largest)), and the same rounded to bf16; m. Four positions in a vector.
inline void few_weights(const SpanTask& task, int64_t rows, const FewSpanMemory& m, NextRows& next) {
  alignas(64) int32_t visible[16];
  for (int64_t i = 0; i < 16; ++i) {
    visible[i] = i % kFewQueries < task.queries ? task.visible[i % kFewQueries] : static_cast<int32_t>(rows);
  }
  const __m512i limit = _mm512_load_si512(visible);
  const __m512i lane_position = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const auto sees = [&](int64_t p) {
    return _mm512_cmpgt_epi32_mask(limit, _mm512_add_epi32(lane_position, _mm512_set1_epi32(static_cast<int>(p))));
  };
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  for (int64_t p = 0; p < rows; p += 4) {
    top = _mm512_mask_max_ps(top, sees(p), top, _mm512_loadu_ps(m.scores + p * kFewQueries));
  }
  top = _mm512_max_ps(top, _mm512_shuffle_f32x4(top, top, 0x4e));
  top = _mm512_max_ps(top, _mm512_shuffle_f32x4(top, top, 0xb1));
  const __m512 factor = _mm512_set1_ps(task.scale * kLog2E);
  const __m512 offset = _mm512_mul_ps(top, factor);
  for (int64_t p = 0; p < rows; p += 4) {
    next.prefetch(4);
    const __m512 score = _mm512_loadu_ps(m.scores + p * kFewQueries);
    const __m512 e = _mm512_maskz_mov_ps(sees(p), exp2_512(_mm512_fmsub_ps(score, factor, offset)));
    _mm512_storeu_ps(m.scores + p * kFewQueries, e);
    _mm512_storeu_ps(m.rounded + p * kFewQueries, rounded_to_bf16(e));
  }
  alignas(64) float most[16];
  _mm512_store_ps(most, _mm512_mul_ps(top, _mm512_set1_ps(task.scale)));
  for (int64_t i = 0; i < task.queries; ++i) task.m[i] = most[i];
}

// 32 dimensions of a row of the cache: the even ones, then the odd ones.
struct TwoWide {
  __m512 of[2];
};
inline TwoWide load_values(const uint8_t* row) {
  const __m512i pairs = load_512(row);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), _mm512_castsi512_ps(_mm512_and_si512(pairs, high))};
}

// Adds up to 32 positions from p on: kQueries queries x 32 * kWides dimensions from `at` on.
template <int kQueries, int kWides>
inline void add_values(const uint8_t* const* row, int64_t count, const float* weights, int64_t at, int64_t head_dim,
                       float* out, NextRows& next) {
  __m512 sums[2][kQueries][kWides][2] = {};  // even and odd positions
  for (int64_t p = 0; p < count; p += 2) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      if (p + odd >= count) break;
      next.prefetch(kWides);
#pragma GCC unroll 4
      for (int wide = 0; wide < kWides; ++wide) {
        const TwoWide values = load_values(row[p + odd] + 2 * (at + 32 * wide));
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) {
          const __m512 weight = _mm512_set1_ps(weights[(p + odd) * kFewQueries + q]);
          sums[odd][q][wide][0] = _mm512_fmadd_ps(weight, values.of[0], sums[odd][q][wide][0]);
          sums[odd][q][wide][1] = _mm512_fmadd_ps(weight, values.of[1], sums[odd][q][wide][1]);
        }
      }
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int wide = 0; wide < kWides; ++wide) {
      float* o = out + q * head_dim + at + 32 * wide;
      for (int i = 0; i < 2; ++i) {
        const __m512 sum = _mm512_add_ps(sums[0][q][wide][i], sums[1][q][wide][i]);
        _mm512_storeu_ps(o + 16 * i, _mm512_add_ps(_mm512_loadu_ps(o + 16 * i), sum));
      }
    }
  }
}

// kQueries: 1, 2 or 4.
template <int kQueries>
inline void few_outputs(const SpanTask& task, int64_t rows, const FewSpanMemory& m, NextRows& next) {
  constexpr int kWides = 4 / kQueries;  // as many sums as fit the registers
  const int64_t d = task.head_dim;
  for (int64_t i = 0; i < kQueries * d; i += 16) _mm512_storeu_ps(m.out + i, _mm512_setzero_ps());
  for (int64_t p = 0; p < rows; p += kPairPositions) {
    const int64_t count = rows - p < kPairPositions ? rows - p : kPairPositions;
    const uint8_t* row[kPairPositions];
    find_rows(task, task.v_pages, p, kPairPositions, rows, row);
    const float* weights = m.rounded + p * kFewQueries;
    int64_t at = 0;
    for (; at + 32 * kWides <= d; at += 32 * kWides) {
      add_values<kQueries, kWides>(row, count, weights, at, d, m.out, next);
    }
    for (; at < d; at += 32) add_values<kQueries, 1>(row, count, weights, at, d, m.out, next);
  }
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t q = 0; q < task.queries; ++q) {
    for (int64_t i = 0; i < d; i += 32) {
      const __m512 even = _mm512_loadu_ps(m.out + q * d + i);
      const __m512 odd = _mm512_loadu_ps(m.out + q * d + i + 16);
      _mm512_storeu_ps(task.o + q * d + i, _mm512_permutex2var_ps(even, first, odd));
      _mm512_storeu_ps(task.o + q * d + i + 16, _mm512_permutex2var_ps(even, second, odd));
    }
  }
}

// l: one chain in ascending position.
inline void few_sums(const SpanTask& task, int64_t rows, const FewSpanMemory& m, NextRows& next) {
  __m128 sum = _mm_setzero_ps();
  for (int64_t p = 0; p < rows; ++p) {
    next.prefetch(1);
    sum = _mm_add_ps(sum, _mm_loadu_ps(m.scores + p * kFewQueries));
  }
  alignas(16) float sums[kFewQueries];
  _mm_store_ps(sums, sum);
  for (int64_t i = 0; i < task.queries; ++i) task.l[i] = sums[i];
}

inline void attend_few(const SpanTask& task) {
  const FewSpanMemory m = few_span_memory(task.scratch, task.head_dim);
  const int64_t rows = max_visible(task);
  NextRows next(task);
  configure_few_tiles();
  pack_few_queries(task, m.queries);
  memory_barrier();
  few_scores(task, rows, m, next);
  memory_barrier();
  _tile_release();
  few_weights(task, rows, m, next);
  few_sums(task, rows, m, next);
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040U);  // subnormals are zero, in and out
  memory_barrier();
  if (task.queries == 1) {
    few_outputs<1>(task, rows, m, next);
  } else if (task.queries == 2) {
    few_outputs<2>(task, rows, m, next);
  } else {
    few_outputs<4>(task, rows, m, next);
  }
  memory_barrier();
  _mm_setcsr(mode);
}

}  // namespace
}  // namespace inferno
