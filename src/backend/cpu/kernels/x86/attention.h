// Attention over one span with f32 arithmetic, for every cache type (bf16: queries and weights are rounded to bf16
// first). Keys and values are widened a chunk at a time and shared by all queries of the block; values of bf16 are
// widened in registers where vectors have 512 bits. A score is one chain in ascending dimension, an output one chain in
// ascending position: as in the scalar table, whose results differ only by its exp.
#pragma once

#include "backend/cpu/kernels/x86/vector_ops.h"

namespace inferno {
namespace {

inline constexpr int64_t kQueryBlock = kWide == 16 ? 64 : 32;
inline constexpr int64_t kTile = 2 * kWide;  // positions or dimensions that are multiplied at once
inline constexpr int64_t kFewQueries = 4;    // that have kernels of their own
inline constexpr int64_t kChunk = 32;        // positions that are widened and multiplied together: half of L1
inline constexpr int64_t kNextLines = 4;     // prefetched at a time: as many as are widened meanwhile
// Between the scores of two queries. Not a power of two: those of all queries of a tile would share sets of the cache.
inline constexpr int64_t kScoreStride = kAttentionSpan + 16;

// Rows [begin, begin + count) of the span; from `rows` on the last row again, whose weight will be zero.
inline void find_rows(const SpanTask& task, const void* const* pages, int64_t begin, int64_t count, int64_t rows,
                      const uint8_t** out) {
  int64_t page = begin / task.page_size;
  int64_t offset = begin % task.page_size;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<const uint8_t*>(pages[page]) + offset * task.row_bytes;
    if (begin + i + 1 >= rows) continue;
    if (++offset == task.page_size) {
      offset = 0;
      ++page;
    }
  }
}

inline int64_t max_visible(const SpanTask& task) {
  int64_t most = 0;
  for (int64_t i = 0; i < task.queries; ++i) most = task.visible[i] > most ? task.visible[i] : most;
  return most;
}

// Prefetches the rows that this thread is expected to read next, a few lines at a time, so that memory works while the
// thread computes. All pages of keys and values in turns: a core reads several streams faster than one.
class NextRows {
 public:
  explicit NextRows(const SpanTask& task) {
    const int64_t pages = (task.next_positions + task.page_size - 1) / task.page_size;
    if (pages > kMaxPages) return;
    for (int64_t i = 0; i < pages; ++i) {
      stream_[streams_++] = static_cast<const uint8_t*>(task.next_k_pages[i]);
      stream_[streams_++] = static_cast<const uint8_t*>(task.next_v_pages[i]);
    }
    const int64_t positions = pages > 1 ? task.page_size : task.next_positions;
    left_ = positions * task.row_bytes / 64;
  }

  [[nodiscard]] int64_t lines() const { return left_ * streams_; }

  [[gnu::always_inline]] void prefetch(int64_t lines) {
    for (; lines > 0 && left_ > 0; --lines) {
      _mm_prefetch(stream_[at_], _MM_HINT_T1);
      stream_[at_] += 64;
      if (++at_ < streams_) continue;
      at_ = 0;
      --left_;
    }
  }

 private:
  static constexpr int64_t kMaxPages = 8;
  const uint8_t* stream_[2 * kMaxPages];
  int64_t streams_ = 0;
  int64_t at_ = 0;    // the stream whose turn it is
  int64_t left_ = 0;  // lines of it
};

// scores[padded], `visible` of them valid, times scale -> weights exp(score - m) in place, zero past `visible`; padded
// is a multiple of kTile. Returns m and l. The sum runs over the lanes in ascending order whatever `visible` is.
struct Softmax {
  float m;
  float l;
};
inline Softmax span_softmax(float* scores, int64_t visible, int64_t padded, float scale) {
  const Wide lowest = wide_set(-__builtin_inff());
  if (visible == 0) {
    for (int64_t i = 0; i < padded; i += kWide) wide_store(scores + i, wide_set(0));
    return {-__builtin_inff(), 0.0F};
  }
  Wide top = lowest;
  for (int64_t i = 0; i < padded; i += kWide) {
    Wide s = wide_mul(wide_load(scores + i), wide_set(scale));
    if (i + kWide > visible) s = wide_first(s, visible > i ? visible - i : 0, lowest);
    wide_store(scores + i, s);
    top = wide_max(top, s);
  }
  const float m = wide_largest(top);
  Wide sum = wide_set(0);
  for (int64_t i = 0; i < padded; i += kWide) {
    const Wide e = exp_f32(wide_add(wide_load(scores + i), wide_set(-m)));
    wide_store(scores + i, e);
    sum = wide_add(sum, e);
  }
  return {m, wide_sum(sum)};
}

inline int64_t padded_dim(int64_t head_dim) {
  return (head_dim + kTile - 1) / kTile * kTile;
}

inline int64_t attention_scratch(int64_t queries, int64_t head_dim) {
  const int64_t blocks = (queries + 3) / 4 * 4;
  // queries, outputs, scores, one chunk (keys by dimension or values by position), eight rows to transpose
  return (blocks * padded_dim(head_dim) * 2 + blocks * kScoreStride + (kChunk + 8) * padded_dim(head_dim)) * 4;
}

template <DType kType>
inline void widen_row(const uint8_t* row, float* out, int64_t n) {
  if constexpr (kType == DType::f32) {
    const auto* from = static_cast<const float*>(static_cast<const void*>(row));
    for (int64_t i = 0; i < n; i += 8) store_some(out + i, load_some(from + i, n - i), n - i);
  } else if constexpr (kType == DType::f16) {
    load_f16_row(row, out, n);
  } else if constexpr (kType == DType::bf16) {
    load_bf16_row(row, out, n);
  } else {
    load_q8_0_row(row, out, n);
  }
}

// in: eight rows `stride` floats apart; out: its transpose, rows kChunk floats apart.
inline void transpose_8(const float* in, int64_t stride, float* out) {
  __m256 r[8];
  __m256 t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(in + i * stride);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * kChunk, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * kChunk, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

#if defined(__AVX512F__)
// Dimensions [d, d + 8) of 16 rows of bf16 as f32, a dimension of all rows in each of out.
[[gnu::always_inline]] inline void transpose_bf16(const uint8_t* const* rows, int64_t d, Wide (&out)[8]) {
  // Lane l of r[i]: row 4 l + i, four pairs of dimensions.
  __m512i r[4];
  const auto pairs_of = [&](int row) {
    return _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(rows[row] + d * 2)));
  };
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_castsi128_si512(pairs_of(i));
    r[i] = _mm512_inserti32x4(r[i], pairs_of(4 + i), 1);
    r[i] = _mm512_inserti32x4(r[i], pairs_of(8 + i), 2);
    r[i] = _mm512_inserti32x4(r[i], pairs_of(12 + i), 3);
  }
  const __m512i low[2] = {_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpacklo_epi32(r[2], r[3])};
  const __m512i high[2] = {_mm512_unpackhi_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[2], r[3])};
  const __m512i pairs[4] = {_mm512_unpacklo_epi64(low[0], low[1]), _mm512_unpackhi_epi64(low[0], low[1]),
                            _mm512_unpacklo_epi64(high[0], high[1]), _mm512_unpackhi_epi64(high[0], high[1])};
  for (int i = 0; i < 4; ++i) {
    const __m512i second = _mm512_and_si512(pairs[i], _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    out[2 * i] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
    out[2 * i + 1] = _mm512_castsi512_ps(second);
  }
}
#endif

// chunk[d][kChunk]: the keys by dimension, of a multiple of kTile positions. rows_8: [8][padded_dim], memory for eight
// rows
template <DType kType>
inline void load_keys(const uint8_t* const* rows, int64_t count, int64_t head_dim, float* chunk, float* rows_8,
                      NextRows& next) {
#if defined(__AVX512F__)
  if (kType == DType::bf16 && head_dim % 8 == 0) {
    for (int64_t p = 0; p < count; p += 16) {
      for (int64_t d = 0; d < head_dim; d += 8) {
        next.prefetch(kNextLines);
        Wide keys[8];
        transpose_bf16(rows + p, d, keys);
        for (int i = 0; i < 8; ++i) wide_store(chunk + (d + i) * kChunk + p, keys[i]);
      }
    }
    return;
  }
#endif
  const int64_t stride = padded_dim(head_dim);
  for (int64_t p = 0; p < count; p += 8) {
    for (int r = 0; r < 8; ++r) widen_row<kType>(rows[p + r], rows_8 + r * stride, head_dim);
    next.prefetch(8 * kNextLines);
    for (int64_t d = 0; d < head_dim; d += 8) transpose_8(rows_8 + d, stride, chunk + d * kChunk + p);
  }
}

// scores[kQueries][kScoreStride] of kQueries queries and kTile positions of the chunk.
template <int kQueries>
inline void score_tile(const float* q, int64_t stride, const float* chunk, int64_t head_dim, float* scores) {
  Wide s[kQueries][2] = {};
  for (int64_t d = 0; d < head_dim; ++d) {
    const Wide low = wide_load(chunk + d * kChunk);
    const Wide high = wide_load(chunk + d * kChunk + kWide);
    for (int i = 0; i < kQueries; ++i) {
      const Wide query = wide_set(q[i * stride + d]);
      s[i][0] = wide_fma(low, query, s[i][0]);
      s[i][1] = wide_fma(high, query, s[i][1]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    wide_store(scores + i * kScoreStride, s[i][0]);
    wide_store(scores + i * kScoreStride + kWide, s[i][1]);
  }
}

// Adds `count` positions to o[kQueries][stride], kTile dimensions.
template <int kQueries>
inline void output_tile(const float* weights, const float* chunk, int64_t stride, int64_t count, float* o) {
  Wide s[kQueries][2];
  for (int i = 0; i < kQueries; ++i) {
    s[i][0] = wide_load(o + i * stride);
    s[i][1] = wide_load(o + i * stride + kWide);
  }
  for (int64_t p = 0; p < count; ++p) {
    const Wide low = wide_load(chunk + p * stride);
    const Wide high = wide_load(chunk + p * stride + kWide);
    for (int i = 0; i < kQueries; ++i) {
      const Wide weight = wide_set(weights[i * kScoreStride + p]);
      s[i][0] = wide_fma(low, weight, s[i][0]);
      s[i][1] = wide_fma(high, weight, s[i][1]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    wide_store(o + i * stride, s[i][0]);
    wide_store(o + i * stride + kWide, s[i][1]);
  }
}

// f<kQueries>(the first of so many queries), as many as fit the registers; queries: a multiple of four.
template <typename F>
inline void for_query_tiles(int64_t queries, F f) {
  constexpr int kMost = kWide == 16 ? 8 : 4;
  int64_t i = 0;
  for (; i + kMost <= queries; i += kMost) f.template operator()<kMost>(i);
  for (; i < queries; i += 4) f.template operator()<4>(i);
}

#if defined(__AVX512F__)
inline constexpr int64_t kValueRows = 64;   // added to all outputs before the next: L1 keeps 64 bytes of each
inline constexpr int64_t kRowsPerTurn = 4;  // of values, between requests of the next span
inline constexpr int64_t kRowsAhead = 4;    // requested from L2

// Adds `count` positions (rows: kRowsAhead more) to o[kQueries][stride], kTile dimensions, which begin `offset` bytes
// into each of the rows: first the even ones, then the odd ones, as the halves of 32-bit words are widened. begin: o
// holds nothing yet.
template <int kQueries, int64_t kLines>
inline void output_tile_bf16(const float* weights, const uint8_t* const* rows, int64_t offset, int64_t count,
                             bool begin, float* o, int64_t stride, NextRows& next) {
  Wide s[kQueries][2];
  for (int i = 0; i < kQueries; ++i) {
    s[i][0] = begin ? wide_set(0) : wide_load(o + i * stride);
    s[i][1] = begin ? wide_set(0) : wide_load(o + i * stride + kWide);
  }
  NextRows ahead = next;
#pragma GCC unroll 4
  for (int64_t p = 0; p < count; ++p) {
    if (p % kRowsPerTurn == 0) ahead.prefetch(kLines);
    _mm_prefetch(rows[p + kRowsAhead] + offset, _MM_HINT_T0);
    const __m512i pairs = _mm512_loadu_si512(rows[p] + offset);
    const Wide even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const Wide odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
    for (int i = 0; i < kQueries; ++i) {
      const Wide weight = wide_set(weights[i * kScoreStride + p]);
      s[i][0] = wide_fma(even, weight, s[i][0]);
      s[i][1] = wide_fma(odd, weight, s[i][1]);
    }
  }
  next = ahead;
  for (int i = 0; i < kQueries; ++i) {
    wide_store(o + i * stride, s[i][0]);
    wide_store(o + i * stride + kWide, s[i][1]);
  }
}

// ---- few queries, as decoding has them: their own products cost less than what prepares the cache for many. Keys are
// not written by dimension, and values are read once for all dimensions. The chains, and so the bits, are the same.

inline constexpr int64_t kFewKeys = 64;  // positions whose chains are in flight

// Whether run_attention() takes this way.
inline bool is_few(const SpanTask& task) {
  return task.queries <= kFewQueries && task.head_dim == 128;
}

// scores[kQueries][kScoreStride] of 16 kSets positions.
template <int kQueries, int kSets>
inline void score_few(const float* q, int64_t stride, const uint8_t* const* rows, int64_t head_dim, float* scores,
                      NextRows& next) {
  Wide s[kQueries][kSets] = {};
  NextRows ahead = next;
  for (int64_t d = 0; d < head_dim; d += 8) {
    ahead.prefetch(kNextLines * kSets);
#pragma GCC unroll 4
    for (int set = 0; set < kSets; ++set) {
      Wide keys[8];
      transpose_bf16(rows + 16 * set, d, keys);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        for (int i = 0; i < kQueries; ++i) s[i][set] = wide_fma(keys[j], wide_set(q[i * stride + d + j]), s[i][set]);
      }
    }
  }
  next = ahead;
  for (int i = 0; i < kQueries; ++i) {
    for (int set = 0; set < kSets; ++set) wide_store(scores + i * kScoreStride + set * 16, s[i][set]);
  }
}

// Adds `count` positions (rows: kRowsAhead more) to o[kQueries][kTiles kTile], as output_tile_bf16() does to one tile.
template <int kQueries, int kTiles>
inline void output_few(const float* weights, const uint8_t* const* rows, int64_t offset, int64_t count, bool begin,
                       float* o, int64_t stride, NextRows& next) {
  Wide s[kQueries][2 * kTiles];
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < 2 * kTiles; ++j) s[i][j] = begin ? wide_set(0) : wide_load(o + i * stride + j * kWide);
  }
  NextRows ahead = next;
#pragma GCC unroll 2
  for (int64_t p = 0; p < count; ++p) {
    ahead.prefetch(kTiles);
#pragma GCC unroll 4
    for (int j = 0; j < kTiles; ++j) {
      _mm_prefetch(rows[p + kRowsAhead] + offset + 64 * j, _MM_HINT_T0);
      const __m512i pairs = _mm512_loadu_si512(rows[p] + offset + 64 * j);
      const Wide even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
      const Wide odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
      for (int i = 0; i < kQueries; ++i) {
        const Wide weight = wide_set(weights[i * kScoreStride + p]);
        s[i][2 * j] = wide_fma(even, weight, s[i][2 * j]);
        s[i][2 * j + 1] = wide_fma(odd, weight, s[i][2 * j + 1]);
      }
    }
  }
  next = ahead;
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < 2 * kTiles; ++j) wide_store(o + i * stride + j * kWide, s[i][j]);
  }
}

// o[kTile] as output_tile_bf16() has it -> in order.
inline void join_even_odd(const float* o, float* out) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  wide_store(out, _mm512_permutex2var_ps(wide_load(o), low, wide_load(o + kWide)));
  wide_store(out + kWide, _mm512_permutex2var_ps(wide_load(o), high, wide_load(o + kWide)));
}

// Values of bf16, whole tiles of dimensions. kLines: of the next span, requested per turn. o: [queries][head_dim], what
// it holds does not matter.
template <int64_t kLines, int kFew = 0>
inline void run_outputs_bf16(const SpanTask& task, int64_t queries, int64_t rows, const float* scores, float* o,
                             NextRows& next) {
  const int64_t d = task.head_dim;
  const uint8_t* row[kValueRows + kRowsAhead];
  for (int64_t p = 0; p < rows; p += kValueRows) {
    const int64_t count = rows - p < kValueRows ? rows - p : kValueRows;
    find_rows(task, task.v_pages, p, count, rows, row);
    for (int64_t i = 0; i < kRowsAhead; ++i) row[count + i] = row[count - 1];
    if constexpr (kFew != 0) {
      constexpr int kTiles = kFew == 2 ? 4 : 2;  // as many as the registers hold
      for (int64_t j = 0; j < d; j += kTiles * kTile) {
        output_few<kFew, kTiles>(scores + p, row, 2 * j, count, p == 0, o + j, d, next);
      }
      continue;
    }
    for (int64_t j = 0; j < d; j += kTile) {
      for_query_tiles(queries, [&]<int kQueries>(int64_t i) {
        output_tile_bf16<kQueries, kLines>(scores + i * kScoreStride + p, row, 2 * j, count, p == 0, o + i * d + j, d,
                                           next);
      });
    }
  }
  for (int64_t i = 0; i < task.queries; ++i) {
    for (int64_t j = 0; j < d; j += kTile) join_even_odd(o + i * d + j, task.o + i * d + j);
  }
}
#endif

#if defined(__AVX512F__)
template <int kQueries>
inline void score_few_keys(const SpanTask& task, const float* q, int64_t padded, int64_t rows, float* scores,
                           NextRows& next) {
  const int64_t d = task.head_dim;
  const uint8_t* row[kFewKeys];
  for (int64_t p = 0; p < padded; p += kFewKeys) {
    const int64_t count = padded - p < kFewKeys ? padded - p : kFewKeys;
    find_rows(task, task.k_pages, p, count, rows, row);
    if (count == kFewKeys) {
      score_few<kQueries, 4>(q, d, row, d, scores + p, next);
    } else {
      for (int64_t i = 0; i < count; i += kTile) score_few<kQueries, 2>(q, d, row + i, d, scores + p + i, next);
    }
  }
}
#endif

template <DType kType>
inline void run_attention(const SpanTask& task) noexcept {
  const int64_t d = task.head_dim;
  const int64_t stride = padded_dim(d);
#if defined(__AVX512F__)
  const bool few = kType == DType::bf16 && is_few(task);
#else
  constexpr bool few = false;
#endif
  const int64_t queries = few ? (task.queries + 1) / 2 * 2 : (task.queries + 3) / 4 * 4;
  const int64_t rows = max_visible(task);
  const int64_t padded = (rows + kTile - 1) / kTile * kTile;
  auto* q = static_cast<float*>(task.scratch);
  float* o = q + queries * stride;
  float* scores = o + queries * stride;
  float* chunk = scores + queries * kScoreStride;
  float* rows_8 = chunk + kChunk * stride;
  const auto rounded = [](__m256 v) { return kType == DType::bf16 ? round_to_bf16(v) : v; };
  for (int64_t i = 0; i < queries; ++i) {
    const float* query = i < task.queries ? span_query(task, i) : nullptr;
    for (int64_t j = 0; j < stride; j += 8) {
      const bool some = query != nullptr && j < d;
      const __m256 v = some ? load_some(query + j, d - j) : _mm256_setzero_ps();
      _mm256_storeu_ps(q + i * stride + j, rounded(v));
      _mm256_storeu_ps(o + i * stride + j, _mm256_setzero_ps());
    }
  }
  NextRows next(task);
  const uint8_t* row[kChunk];
#if defined(__AVX512F__)
  if (few) {
    queries == 2 ? score_few_keys<2>(task, q, padded, rows, scores, next)
                 : score_few_keys<4>(task, q, padded, rows, scores, next);
  }
#endif
  for (int64_t p = 0; p < padded && !few; p += kChunk) {
    const int64_t count = padded - p < kChunk ? padded - p : kChunk;
    find_rows(task, task.k_pages, p, count, rows, row);
    load_keys<kType>(row, count, d, chunk, rows_8, next);
    for (int64_t j = 0; j < count; j += kTile) {
      for_query_tiles(queries, [&]<int kQueries>(int64_t i) {
        score_tile<kQueries>(q + i * stride, stride, chunk + j, d, scores + i * kScoreStride + p + j);
      });
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* s = scores + i * kScoreStride;
    const Softmax soft = span_softmax(s, i < task.queries ? task.visible[i] : 0, padded, task.scale);
    if constexpr (kType == DType::bf16) {
      for (int64_t p = 0; p < padded; p += kWide) wide_store(s + p, wide_round_to_bf16(wide_load(s + p)));
    }
    if (i >= task.queries) continue;
    task.m[i] = soft.m;
    task.l[i] = soft.l;
  }
#if defined(__AVX512F__)
  if (kType == DType::bf16 && d % kTile == 0 && rows > 0) {
    if (few) {
      queries == 2 ? run_outputs_bf16<0, 2>(task, queries, rows, scores, o, next)
                   : run_outputs_bf16<0, 4>(task, queries, rows, scores, o, next);
      return;
    }
    // One tile of queries has fewer turns than several.
    queries > 8 ? run_outputs_bf16<2>(task, queries, rows, scores, o, next)
                : run_outputs_bf16<4>(task, queries, rows, scores, o, next);
    return;
  }
#endif
  // Zero the padding of the dimensions to a tile: a NaN or subnormal there would slow the products down.
  for (int64_t i = 0; i < kChunk && d < stride; ++i) {
    for (int64_t j = d / 8 * 8; j < stride; j += 8) _mm256_storeu_ps(chunk + i * stride + j, _mm256_setzero_ps());
  }
  for (int64_t p = 0; p < rows; p += kChunk) {
    const int64_t count = rows - p < kChunk ? rows - p : kChunk;
    find_rows(task, task.v_pages, p, count, rows, row);
    for (int64_t i = 0; i < count; ++i) {
      next.prefetch(kNextLines);
      widen_row<kType>(row[i], chunk + i * stride, d);
    }
    for (int64_t j = 0; j < d; j += kTile) {
      for_query_tiles(queries, [&]<int kQueries>(int64_t i) {
        output_tile<kQueries>(scores + i * kScoreStride + p, chunk + j, stride, count, o + i * stride + j);
      });
    }
  }
  for (int64_t i = 0; i < task.queries; ++i) {
    for (int64_t j = 0; j < d; j += 8) store_some(task.o + i * d + j, _mm256_loadu_ps(o + i * stride + j), d - j);
  }
}

template <DType kType>
inline void set_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(kType)] = {name, kQueryBlock, attention_scratch, run_attention<kType>};
}
inline void fill_attention(KernelTable& table, const char* name) {
  set_attention<DType::f32>(table, name);
  set_attention<DType::f16>(table, name);
  set_attention<DType::bf16>(table, name);
  set_attention<DType::q8_0>(table, name);
}

}  // namespace
}  // namespace inferno
