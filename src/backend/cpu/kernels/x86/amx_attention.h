// Attention over one span of a bf16 cache with the matrix tiles: bf16 products, f32 sums.
//
// Scores come out by position, 16 queries side by side: rows of the cache are the left side of a product as they are,
// and the softmax of 16 queries needs no sum across lanes. Weights are then transposed, queries as rows, for the
// second product; its right side is the values with two positions interleaved.
//
// A query's results do not depend on the others: a score is one chain of tile products in ascending dimension, a sum of
// weights one chain in ascending position, an output one chain of tile products in ascending position; positions a
// query does not see count as weight zero.
#pragma once

#include "backend/cpu/kernels/x86/amx_attention_few.h"

namespace inferno {
namespace {

inline constexpr int64_t kAmxQueries = 64;  // of a task; values are interleaved once for all of them
inline constexpr int64_t kTileQueries = 16;
inline constexpr int64_t kPairQueries = 32;  // two tiles of queries are processed together

// What is read next, and how many lines of it are requested at a time.
struct Requests {
  NextRows rows;
  int64_t lines = 0;
};

// Offsets into the scratch memory of a task: for a pair of query tiles, and the values for all pairs.
struct AmxSpanMemory {
  uint8_t* queries;  // [2 tiles][d / 32][16 pairs of dimensions][16 queries][2] bf16
  float* scores;     // [2 tiles][256 positions][16 queries]
  uint8_t* weights;  // [2 tiles][256 / 32][16 queries][32 positions] bf16
  uint8_t* values;   // [256 / 2][d][2] bf16, dimensions in the order of interleave_values
  uint8_t* keys;     // [2][16][d] bf16: tiles whose rows are not equally spaced in the cache
  float* out;        // [4 tiles][16][16]
};
inline AmxSpanMemory amx_span_memory(void* scratch, int64_t head_dim) {
  AmxSpanMemory m;
  auto* at = static_cast<uint8_t*>(scratch);
  m.queries = at;
  at += kPairQueries * head_dim * 2;
  m.scores = as<float>(at);
  at += kPairQueries * kAttentionSpan * 4;
  m.weights = at;
  at += kPairQueries * kAttentionSpan * 2;
  m.values = at;
  at += kAttentionSpan * head_dim * 2;
  m.keys = at;
  at += 2 * kTilePositions * head_dim * 2;
  m.out = as<float>(at);
  return m;
}
inline int64_t amx_span_bytes(int64_t head_dim) {
  return kPairQueries * (head_dim * 2 + kAttentionSpan * 6) + (kAttentionSpan + 2 * kTilePositions) * head_dim * 2 +
         4 * kTileBytes;
}

// v[r] lane c -> v[c] lane r, 32 bits each.
inline void transpose_16(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  // Column c of each four rows is now in the four 128-bit lanes of v[4 i + c]; lane l holds column 4 l + c.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    v[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    v[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    v[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

// The tile of queries from `first` on, dimensions in pairs; queries that are missing are zeros.
inline void pack_queries(const SpanTask& task, int64_t first, uint8_t* to) {
  for (int64_t d = 0; d < task.head_dim; d += kTileDims, to += kTileBytes) {
    __m512i v[16];
    for (int i = 0; i < 16; ++i) {
      const int64_t query = first + i;
      v[i] = query < task.queries ? query_pairs(span_query(task, query) + d) : _mm512_setzero_si512();
    }
    transpose_16(v);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 64 * i, v[i]);
  }
}

// Scores of positions [0, rows) in whole tiles for kTiles (1 or 2) tiles of queries.
template <int kTiles>
inline void score_tiles(const SpanTask& task, int64_t rows, const AmxSpanMemory& m) {
  const int64_t d = task.head_dim;
  const int64_t query_bytes = d * kTileQueries * 2;
  constexpr int64_t kScores = kAttentionSpan * kTileQueries;
  for (int64_t p = 0; p < rows; p += kPairPositions) {
    const KeyTile first = key_tile(task, p, rows, m.keys);
    KeyTile second = first;  // again where no position is left: its scores are not read
    if (p + kTilePositions < rows) second = key_tile(task, p + kTilePositions, rows, m.keys + kTilePositions * d * 2);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < d / kTileDims; ++i) {
      _tile_loadd(4, first.at + 64 * i, first.stride);
      _tile_loadd(6, m.queries + kTileBytes * i, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTiles == 2) {
        _tile_loadd(7, m.queries + query_bytes + kTileBytes * i, 64);
        _tile_dpbf16ps(2, 4, 7);
      }
      _tile_loadd(4, second.at + 64 * i, second.stride);
      _tile_dpbf16ps(1, 4, 6);
      if constexpr (kTiles == 2) _tile_dpbf16ps(3, 4, 7);
    }
    float* scores = m.scores + p * kTileQueries;
    _tile_stored(0, scores, 64);
    _tile_stored(1, scores + kTilePositions * kTileQueries, 64);
    if constexpr (kTiles == 2) {
      _tile_stored(2, scores + kScores, 64);
      _tile_stored(3, scores + kScores + kTilePositions * kTileQueries, 64);
    }
  }
}

// Softmax of the tile of queries from `first` on over positions [0, rows): scores -> weights, m and l. It needs nothing
// from memory, so the rows that are read next are requested meanwhile.
inline void query_tile_softmax(const SpanTask& task, int64_t first, int64_t rows, const float* scores, uint8_t* weights,
                               Requests& requests) {
  const int64_t count = task.queries - first < kTileQueries ? task.queries - first : kTileQueries;
  // Queries that are missing see what the others see.
  alignas(64) int32_t visible[kTileQueries];
  int64_t all = rows;  // positions every query sees
  for (int64_t i = 0; i < kTileQueries; ++i) {
    visible[i] = i < count ? task.visible[first + i] : static_cast<int32_t>(rows);
    all = visible[i] < all ? visible[i] : all;
  }
  const __m512i limit = _mm512_load_si512(visible);
  const auto sees = [&](int64_t p) { return _mm512_cmpgt_epi32_mask(limit, _mm512_set1_epi32(static_cast<int>(p))); };
  __m512 top[2];
  top[0] = top[1] = _mm512_set1_ps(-__builtin_inff());
  int64_t p = 0;
  for (; p + 2 <= all; p += 2) {
    top[0] = _mm512_max_ps(top[0], _mm512_loadu_ps(scores + p * kTileQueries));
    top[1] = _mm512_max_ps(top[1], _mm512_loadu_ps(scores + (p + 1) * kTileQueries));
  }
  for (; p < rows; ++p) {
    top[0] = _mm512_mask_max_ps(top[0], sees(p), top[0], _mm512_loadu_ps(scores + p * kTileQueries));
  }
  // The scale is positive: the largest score stays the largest. 2^t = e^(scale * (score - largest)).
  const __m512 most = _mm512_mul_ps(_mm512_max_ps(top[0], top[1]), _mm512_set1_ps(task.scale));
  const __m512 factor = _mm512_set1_ps(task.scale * kLog2E);
  const __m512 offset = _mm512_mul_ps(_mm512_max_ps(top[0], top[1]), factor);
  __m512 sum = _mm512_setzero_ps();
  const auto weight = [&](int64_t at) {
    const __m512 e = exp2_512(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at * kTileQueries), factor, offset));
    return at < all ? e : _mm512_maskz_mov_ps(at < rows ? sees(at) : __mmask16{0}, e);
  };
  for (p = 0; p < rows; p += kPairPositions) {
    __m512i pairs[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512 low = weight(p + 2 * i);
      const __m512 high = weight(p + 2 * i + 1);
      sum = _mm512_add_ps(_mm512_add_ps(sum, low), high);
      pairs[i] = bf16_pairs(low, high);
    }
    transpose_16(pairs);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(weights + p * kTileQueries * 2 + 64 * i, pairs[i]);
    requests.rows.prefetch(requests.lines);
  }
  alignas(64) float results[2][kTileQueries];
  _mm512_store_ps(results[0], most);
  _mm512_store_ps(results[1], sum);
  for (int64_t i = 0; i < count; ++i) {
    task.m[first + i] = results[0][i];
    task.l[first + i] = results[1][i];
  }
}

// Values of positions [0, rows) in pairs of positions, padded with zeros to whole products. Of each 32 dimensions
// the fours 0, 2, 4, 6 come first, then the fours 1, 3, 5, 7: interleaving works on 128-bit lanes.
inline void interleave_values(const SpanTask& task, int64_t rows, uint8_t* values) {
  const int64_t d = task.head_dim;
  const int64_t padded = (rows + kPairPositions - 1) / kPairPositions * kPairPositions;
  const __m512i zero = _mm512_setzero_si512();
  for (int64_t p = 0; p < padded; p += 2, values += 4 * d) {
    const uint8_t* row[2] = {};
    if (p < rows) find_rows(task, task.v_pages, p, 2, rows, row);
    for (int64_t i = 0; i < 2 * d; i += 64) {
      const __m512i first = p < rows ? load_512(row[0] + i) : zero;
      const __m512i second = p + 1 < rows ? load_512(row[1] + i) : zero;
      _mm512_storeu_si512(values + 2 * i, _mm512_unpacklo_epi16(first, second));
      _mm512_storeu_si512(values + 2 * i + 64, _mm512_unpackhi_epi16(first, second));
    }
  }
}

// Outputs of the kTiles tiles of queries from `first` on, 32 dimensions at a time.
template <int kTiles>
inline void output_tiles(const SpanTask& task, int64_t first, int64_t rows, const AmxSpanMemory& m) {
  const int64_t d = task.head_dim;
  constexpr int64_t kWeights = kAttentionSpan * kTileQueries * 2;
  const int64_t value_stride = 4 * d;
  for (int64_t at = 0; at < d; at += kTileDims) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTiles == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t p = 0; p < rows; p += kPairPositions) {
      const uint8_t* values = m.values + p / 2 * value_stride + 4 * at;
      _tile_loadd(4, m.weights + p * kTileQueries * 2, 64);
      _tile_loadd(6, values, value_stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, values + 64, value_stride);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kTiles == 2) {
        _tile_loadd(4, m.weights + kWeights + p * kTileQueries * 2, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
      }
    }
    float* out = m.out;
    _tile_stored(0, out, 64);
    _tile_stored(1, out + 256, 64);
    if constexpr (kTiles == 2) {
      _tile_stored(2, out + 512, 64);
      _tile_stored(3, out + 768, 64);
    }
    memory_barrier();
    // Fours 0 2 4 6 and 1 3 5 7 back into order.
    const __m512i left = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i right = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int64_t i = 0; i < kTiles * kTileQueries && first + i < task.queries; ++i) {
      const float* from = out + i / kTileQueries * 512 + i % kTileQueries * 16;
      const __m512 low = _mm512_loadu_ps(from);
      const __m512 high = _mm512_loadu_ps(from + 256);
      float* o = task.o + (first + i) * d + at;
      _mm512_storeu_ps(o, _mm512_permutex2var_ps(low, left, high));
      _mm512_storeu_ps(o + 16, _mm512_permutex2var_ps(low, right, high));
    }
  }
}

// All steps for the queries [first, first + 16 kTiles) that exist.
template <int kTiles>
inline void attend(const SpanTask& task, int64_t first, const AmxSpanMemory& m, Requests& requests) {
  int64_t rows = 0;
  for (int64_t i = first; i < first + kTiles * kTileQueries && i < task.queries; ++i) {
    rows = task.visible[i] > rows ? task.visible[i] : rows;
  }
  for (int64_t i = 0; i < kTiles; ++i) {
    pack_queries(task, first + i * kTileQueries, m.queries + i * task.head_dim * kTileQueries * 2);
  }
  memory_barrier();
  score_tiles<kTiles>(task, rows, m);
  memory_barrier();
  for (int64_t i = 0; i < kTiles; ++i) {
    query_tile_softmax(task, first + i * kTileQueries, rows, m.scores + i * kAttentionSpan * kTileQueries,
                       m.weights + i * kAttentionSpan * kTileQueries * 2, requests);
  }
  memory_barrier();
  output_tiles<kTiles>(task, first, rows, m);
}

inline int64_t amx_attention_scratch(int64_t queries, int64_t head_dim) {
  if (head_dim % kTileDims != 0) return attention_scratch(queries, head_dim);
  return queries <= kFewQueries ? few_span_bytes(head_dim) : amx_span_bytes(head_dim);
}

inline void run_amx_attention(const SpanTask& task) noexcept {
  if (task.head_dim % kTileDims != 0) return run_attention<DType::bf16>(task);
  if (task.queries <= kFewQueries) return attend_few(task);
  const AmxSpanMemory m = amx_span_memory(task.scratch, task.head_dim);
  configure_tiles(64);
  const int64_t rows = max_visible(task);
  interleave_values(task, rows, m.values);
  Requests requests{.rows = NextRows(task)};
  const int64_t turns =
      (task.queries + kTileQueries - 1) / kTileQueries * ((rows + kPairPositions - 1) / kPairPositions);
  if (turns > 0) requests.lines = (requests.rows.lines() + turns - 1) / turns;
  int64_t first = 0;
  for (; first + kTileQueries < task.queries; first += kPairQueries) attend<2>(task, first, m, requests);
  if (first < task.queries) attend<1>(task, first, m, requests);
  _tile_release();
}

inline void fill_amx_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(DType::bf16)] = {name, kAmxQueries, amx_attention_scratch, run_amx_attention};
}

}  // namespace
}  // namespace inferno
