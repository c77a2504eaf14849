// Quantized weights times one to four activation rows: decoding, and prefill where a table has nothing better.
// Bit-equal to quant/numerics.h.
//
// The range of groups is split into distant streams that are read in lockstep, a few blocks at a time: a core reaches
// more memory bandwidth with several streams than with one.
#pragma once

#include "backend/cpu/kernels/x86/dot.h"
#include "backend/cpu/kernels/x86/wide_dot.h"

namespace inferno {
namespace {

// How weights are streamed. The hardware prefetchers of these cores stop at each page and ramp up slowly; software
// prefetching at some distance keeps all of a core's line-fill buffers busy. Measured with all cores reading:
// docs/decisions/x86-amx.md.
struct StreamPolicy {
  int streams = 8;
  int turn_bytes = 1024;         // of a stream before the next one's turn: long enough to hide the switch
  int prefetch_distance = 2048;  // bytes
  bool to_l1 = false;            // prefetch into L1, else into L2
};

// Always inline, like all functions that only prefetch: gcc treats them as functions without effect and removes calls
// of them.
template <int kBytes, bool kToL1 = true>
[[gnu::always_inline]] inline void prefetch_lines(const uint8_t* from) {
  for (int i = 0; i < kBytes; i += 64) {
    if constexpr (kToL1) {
      _mm_prefetch(from + i, _MM_HINT_T0);
    } else {
      _mm_prefetch(from + i, _MM_HINT_T1);
    }
  }
}

// Prefetches a line for each line of weights that is read: of the task's prefetch ranges, or without them of the same
// stream at the policy's distance.
template <StreamPolicy kPolicy>
class Prefetcher {
 public:
  explicit Prefetcher(const LinearTask& task) : next_(task.prefetch), last_(task.prefetch + task.prefetch_count) {}

  // kBytes of weights at `block` are about to be read.
  template <int kBytes>
  [[gnu::always_inline]] inline void prefetch_for(const uint8_t* block) {
    if (next_ == nullptr) {
      prefetch_lines<kBytes, kPolicy.to_l1>(block + kPolicy.prefetch_distance);
      return;
    }
    if (at_ >= end_) {
      if (next_ == last_) return;
      at_ = static_cast<const uint8_t*>(static_cast<const void*>(next_->begin));
      end_ = at_ + next_->bytes;
      ++next_;
    }
    prefetch_lines<kBytes, false>(at_);
    at_ += kBytes;
  }

 private:
  const MemoryRange* next_;
  const MemoryRange* last_;  // one past the last
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

// Running sums of one group for kTokens tokens.
template <int kTokens>
struct GroupSums {
  __m256 of[kTokens];
};

// One tile (32 columns, all rows) times kTokens tokens at column `column`.
template <InterleavedFormat kFormat, int kTokens, typename Row>
inline void tile_dots(const uint8_t* tile, const Row* x, int64_t column, __m256i* isum) {
#if defined(__AVX512F__)
  if constexpr (kWideDot<kFormat> && kTokens >= kWideTokens) {
    const WideLevels first = half_levels<kFormat>(tile);
    const WideLevels second = half_levels<kFormat>(tile + InterleavedBlock<kFormat>::kTileBytes);
    for (int t = 0; t < kTokens; ++t) {
      const __m512i low = spread_columns(x[t].q + column);
      const __m512i high = spread_columns(x[t].q + column + 16);
      isum[t] = add_lanes(wide_dot(first, low, high), wide_dot(second, low, high));
    }
    return;
  }
#endif
  __m256i w[8];
  tile_levels<kFormat>(tile, w);
  for (int t = 0; t < kTokens; ++t) isum[t] = row_dot<kFormat.level_bits(), 8>(w, x[t].q + column);
}

// `count` blocks of 32 columns from block `first`.
template <InterleavedFormat kFormat, int kTokens, StreamPolicy kPolicy>
inline void add_blocks(const uint8_t* group, const Row32* x, int64_t first, int64_t count, GroupSums<kTokens>& sums,
                       Prefetcher<kPolicy>& prefetcher) {
  using Layout = InterleavedBlock<kFormat>;
  GroupSums<kTokens> s = sums;
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    prefetcher.template prefetch_for<Layout::kBytes>(block);
    const __m256 d = load_d<kFormat>(block + Layout::kD);
    __m256i isum[kTokens];
    tile_dots<kFormat, kTokens>(block + Layout::kTiles, x, b * 32, isum);
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (kHasOffset<kFormat>) {
        const __m256i offset = _mm256_slli_epi32(_mm256_set1_epi32(x[t].sums[b]), kOffsetShift<kFormat>);
        isum[t] = _mm256_sub_epi32(isum[t], offset);
      }
      const __m256 dx = _mm256_set1_ps(x[t].d[b]);
      s.of[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[t]), _mm256_mul_ps(d, dx), s.of[t]);
      if constexpr (kFormat.minimums) {
        const __m256 m = load_scales(block + Layout::kM);
        const __m256 msum = _mm256_cvtepi32_ps(_mm256_set1_epi32(x[t].sums[b]));
        s.of[t] = _mm256_fmadd_ps(msum, _mm256_mul_ps(m, dx), s.of[t]);
      }
    }
  }
  sums = s;
}

// Scales or minimums of four sub-blocks: 16 bytes of each half.
template <InterleavedFormat kFormat>
inline __m256i load_subs(const uint8_t* subs, int four) {
  return load_halves(subs + 16 * four, 4 * InterleavedBlock<kFormat>::kSubs);
}
template <InterleavedFormat kFormat>
inline __m256i load_sub_scales(const uint8_t* block, int four) {
  const __m256i v = load_subs<kFormat>(block + InterleavedBlock<kFormat>::kScales, four);
  return kFormat.joined_scales ? down<0>(v, 15) : v;
}
template <InterleavedFormat kFormat>
inline __m256i load_minimums(const uint8_t* block, int four) {
  const __m256i v = load_subs<kFormat>(block + InterleavedBlock<kFormat>::kMins, four);
  return kFormat.joined_scales ? down<4>(v, 15) : v;
}

inline __m256i two_sums(const int16_t* sums) {
  int32_t two;
  __builtin_memcpy(&two, sums, 4);
  return _mm256_set1_epi32(two);
}

// Sum over sub-blocks of minimum * sum of q, per row.
template <InterleavedFormat kFormat>
inline __m256i minimum_dot(const uint8_t* block, const BlockSums& x) {
  const int16_t* sums = kFormat.sub == 32 ? x.shuffled_32 : x.shuffled_16;
  __m256i total = _mm256_setzero_si256();
  for (int i = 0; i < InterleavedBlock<kFormat>::kSubs / 4; ++i) {
    const __m256i m = load_minimums<kFormat>(block, i);
    const __m256i even = _mm256_and_si256(m, _mm256_set1_epi16(0xff));
    const __m256i odd = _mm256_srli_epi16(m, 8);
    total = _mm256_add_epi32(total, _mm256_madd_epi16(even, two_sums(sums + 4 * i)));
    total = _mm256_add_epi32(total, _mm256_madd_epi16(odd, two_sums(sums + 4 * i + 2)));
  }
  return total;
}

// A sum in the low half of 32 bits, zero in the high half: only the low half of a factor is multiplied by it, which is
// the scale itself in either form of a factor.
inline int32_t low_half(int16_t sum) {
  return static_cast<uint16_t>(sum);
}

// 32 columns of a super-block: tile kTile of four that share the vectors of scales.
template <InterleavedFormat kFormat, int kTile, int kTokens>
inline void add_tile(const uint8_t* tiles, const __m256i* scales, const Row256* x, int64_t b, int first_tile,
                     __m256i* isum, __m256i* offset) {
  using Layout = InterleavedBlock<kFormat>;
  constexpr bool kSigned = !kFormat.minimums;
  const int tile = first_tile + kTile;
  __m256i w[8];
  tile_levels<kFormat>(tiles + 2 * tile * Layout::kTileBytes, w);
  if constexpr (kFormat.sub == 32) {
    const __m256i factor = scale_factor<kTile, kSigned>(scales[0]);
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* q = x[t].q + b * 256 + tile * 32;
      isum[t] = _mm256_add_epi32(isum[t], scaled_dot<kFormat.level_bits(), 8>(w, q, factor));
      if constexpr (kHasOffset<kFormat>) {
        const __m256i sum = _mm256_set1_epi32(low_half(x[t].sums[b].plain_32[tile]));
        offset[t] = _mm256_add_epi32(offset[t], _mm256_madd_epi16(factor, sum));
      }
    }
  } else {
    const __m256i left = scale_factor<kTile % 2 * 2, kSigned>(scales[kTile / 2]);
    const __m256i right = scale_factor<kTile % 2 * 2 + 1, kSigned>(scales[kTile / 2]);
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* q = x[t].q + b * 256 + tile * 32;
      isum[t] = _mm256_add_epi32(isum[t], scaled_dot<kFormat.level_bits(), 4>(w, q, left));
      isum[t] = _mm256_add_epi32(isum[t], scaled_dot<kFormat.level_bits(), 4>(w + 4, q + 16, right));
      if constexpr (kHasOffset<kFormat>) {
        const int32_t* sums = x[t].sums[b].low_16 + 2 * tile;
        offset[t] = _mm256_add_epi32(offset[t], _mm256_madd_epi16(left, _mm256_set1_epi32(sums[0])));
        offset[t] = _mm256_add_epi32(offset[t], _mm256_madd_epi16(right, _mm256_set1_epi32(sums[1])));
      }
    }
  }
}

// The sums of super-block b, each sub-block times its scale, and the excess of levels that have an offset added.
template <InterleavedFormat kFormat, int kTokens>
inline void super_block_dots(const uint8_t* block, const Row256* x, int64_t b, __m256i* isum, __m256i* offset) {
  constexpr int kFours = InterleavedBlock<kFormat>::kSubs / 8;  // vectors of scales for 128 columns
  const uint8_t* tiles = block + InterleavedBlock<kFormat>::kTiles;
  for (int half = 0; half < 2; ++half) {
    __m256i scales[kFours];
    for (int i = 0; i < kFours; ++i) scales[i] = load_sub_scales<kFormat>(block, half * kFours + i);
    add_tile<kFormat, 0, kTokens>(tiles, scales, x, b, 4 * half, isum, offset);
    add_tile<kFormat, 1, kTokens>(tiles, scales, x, b, 4 * half, isum, offset);
    add_tile<kFormat, 2, kTokens>(tiles, scales, x, b, 4 * half, isum, offset);
    add_tile<kFormat, 3, kTokens>(tiles, scales, x, b, 4 * half, isum, offset);
  }
}

#if defined(__AVX512F__)
// Tile first_tile + kTile of super-block b. scales: of the rows 0-3 and 4-7, four sub-blocks.
template <InterleavedFormat kFormat, int kTile, int kTokens>
inline void add_wide_tile(const uint8_t* tiles, const __m512i* scales, const Row256* x, int64_t b, int first_tile,
                          __m512i (&isum)[2][kTokens]) {
  constexpr int kTileBytes = InterleavedBlock<kFormat>::kTileBytes;
  const int tile = first_tile + kTile;
  WideLevels w[2];
  __m512i factor[2];
  for (int half = 0; half < 2; ++half) {
    w[half] = half_levels<kFormat>(tiles + (2 * tile + half) * kTileBytes);
    factor[half] = wide_scales<kTile>(scales[half]);
  }
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* q = x[t].q + b * 256 + tile * 32;
    const __m512i low = spread_columns(q);
    const __m512i high = spread_columns(q + 16);
    static_assert(kFormat.bits == 4 && kFormat.minimums);
    isum[0][t] = add_scaled(isum[0][t], w[0], low, high, factor[0]);
    isum[1][t] = add_scaled(isum[1][t], w[1], low, high, factor[1]);
  }
}

template <InterleavedFormat kFormat, int kTokens>
  requires(kWideDot<kFormat> && kTokens >= kWideTokens)
inline void super_block_dots(const uint8_t* block, const Row256* x, int64_t b, __m256i* isum, __m256i* /*offset*/) {
  using Layout = InterleavedBlock<kFormat>;
  __m512i wide[2][kTokens] = {};
  for (int four = 0; four < Layout::kSubs / 4; ++four) {
    const uint8_t* subs = block + Layout::kScales + 16 * four;
    const __m512i scales[2] = {_mm512_broadcast_i32x4(load_128(subs)),
                               _mm512_broadcast_i32x4(load_128(subs + 4 * Layout::kSubs))};
    const uint8_t* tiles = block + Layout::kTiles;
    add_wide_tile<kFormat, 0, kTokens>(tiles, scales, x, b, 4 * four, wide);
    add_wide_tile<kFormat, 1, kTokens>(tiles, scales, x, b, 4 * four, wide);
    add_wide_tile<kFormat, 2, kTokens>(tiles, scales, x, b, 4 * four, wide);
    add_wide_tile<kFormat, 3, kTokens>(tiles, scales, x, b, 4 * four, wide);
  }
  for (int t = 0; t < kTokens; ++t) isum[t] = add_lanes(wide[0][t], wide[1][t]);
}

#if defined(__AVX512VNNI__)
template <InterleavedFormat kFormat, int kTokens>
  requires kSixBitDot<kFormat>
inline void super_block_dots(const uint8_t* block, const Row256* x, int64_t b, __m256i* isum, __m256i* /*offset*/) {
  using Layout = InterleavedBlock<kFormat>;
  // What the offset of the levels adds to the sum of a sub-block, subtracted beforehand.
  __m512i offsets[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const __m512i sums = _mm512_cvtepi16_epi32(load_256(x[t].sums[b].plain_16));
    offsets[t] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums, kOffsetShift<kFormat>));
  }
  const __m512i two = _mm512_set1_epi32(2);
  __m512i sub_blocks = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
  __m512i total[kTokens] = {};
  for (int tile = 0; tile < 8; ++tile) {
    __m512i w[4];
    unpack_six_bits(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    const __m512i scales = six_bit_scales(block + Layout::kScales + 8 * tile, 4 * Layout::kSubs);
    for (int t = 0; t < kTokens; ++t) {
      const __m512i q = _mm512_broadcast_i64x4(load_256(x[t].q + b * 256 + tile * 32));
      __m512i dot = _mm512_permutexvar_epi32(sub_blocks, offsets[t]);
      dot = _mm512_dpbusd_epi32(dot, w[0], _mm512_shuffle_epi32(q, _MM_PERM_AAAA));
      dot = _mm512_dpbusd_epi32(dot, w[1], _mm512_shuffle_epi32(q, _MM_PERM_BBBB));
      dot = _mm512_dpbusd_epi32(dot, w[2], _mm512_shuffle_epi32(q, _MM_PERM_CCCC));
      dot = _mm512_dpbusd_epi32(dot, w[3], _mm512_shuffle_epi32(q, _MM_PERM_DDDD));
      total[t] = _mm512_add_epi32(total[t], _mm512_mullo_epi32(dot, scales));
    }
    sub_blocks = _mm512_add_epi32(sub_blocks, two);
  }
  for (int t = 0; t < kTokens; ++t) isum[t] = add_sub_blocks(total[t]);
}
#else
// Two products of six bits are added in 16, which the scale widens.
template <InterleavedFormat kFormat, int kTokens>
  requires kSixBitDot<kFormat>
inline void super_block_dots(const uint8_t* block, const Row256* x, int64_t b, __m256i* isum, __m256i* /*offset*/) {
  using Layout = InterleavedBlock<kFormat>;
  // Minus half of what the offset of the levels adds to the sum of a sub-block, twice: it fits 16 bits.
  __m512i offsets[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const __m256i halves = _mm256_sub_epi16(
        _mm256_setzero_si256(), _mm256_slli_epi16(load_256(x[t].sums[b].plain_16), kOffsetShift<kFormat> - 1));
    const __m512i low = _mm512_and_si512(_mm512_cvtepi16_epi32(halves), _mm512_set1_epi32(0xffff));
    offsets[t] = _mm512_xor_si512(low, _mm512_slli_epi32(low, 16));
  }
  const __m512i two = _mm512_set1_epi32(2);
  __m512i sub_blocks = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
  __m512i total[kTokens] = {};
  for (int tile = 0; tile < 8; ++tile) {
    __m512i w[4];
    unpack_six_bits(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    const __m512i scales = six_bit_scale_pairs(six_bit_scales(block + Layout::kScales + 8 * tile, 4 * Layout::kSubs));
    for (int t = 0; t < kTokens; ++t) {
      const __m512i q = _mm512_broadcast_i64x4(load_256(x[t].q + b * 256 + tile * 32));
      const __m512i first = _mm512_add_epi16(_mm512_maddubs_epi16(w[0], _mm512_shuffle_epi32(q, _MM_PERM_AAAA)),
                                             _mm512_maddubs_epi16(w[1], _mm512_shuffle_epi32(q, _MM_PERM_BBBB)));
      const __m512i second = _mm512_add_epi16(_mm512_maddubs_epi16(w[2], _mm512_shuffle_epi32(q, _MM_PERM_CCCC)),
                                              _mm512_maddubs_epi16(w[3], _mm512_shuffle_epi32(q, _MM_PERM_DDDD)));
      const __m512i offset = _mm512_permutexvar_epi32(sub_blocks, offsets[t]);
      total[t] = _mm512_add_epi32(total[t], _mm512_madd_epi16(offset, scales));
      total[t] = _mm512_add_epi32(
          total[t], _mm512_add_epi32(_mm512_madd_epi16(first, scales), _mm512_madd_epi16(second, scales)));
    }
    sub_blocks = _mm512_add_epi32(sub_blocks, two);
  }
  for (int t = 0; t < kTokens; ++t) isum[t] = add_sub_blocks(total[t]);
}
#endif
#endif

// `count` super-blocks of 256 columns from super-block `first`.
template <InterleavedFormat kFormat, int kTokens, StreamPolicy kPolicy>
inline void add_blocks(const uint8_t* group, const Row256* x, int64_t first, int64_t count, GroupSums<kTokens>& sums,
                       Prefetcher<kPolicy>& prefetcher) {
  using Layout = InterleavedBlock<kFormat>;
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    prefetcher.template prefetch_for<Layout::kBytes>(block);
    __m256i isum[kTokens] = {};
    __m256i offset[kTokens] = {};
    super_block_dots<kFormat, kTokens>(block, x, b, isum, offset);
    const __m256 d = load_d<kFormat>(block + Layout::kD);
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (kHasOffset<kFormat>) {
        isum[t] = _mm256_sub_epi32(isum[t], _mm256_slli_epi32(offset[t], kOffsetShift<kFormat>));
      }
      const __m256 dx = _mm256_set1_ps(x[t].d[b]);
      sums.of[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[t]), _mm256_mul_ps(d, dx), sums.of[t]);
      if constexpr (kFormat.minimums) {
        const __m256 m = load_scales(block + Layout::kM);
        const __m256 msum = _mm256_cvtepi32_ps(minimum_dot<kFormat>(block, x[t].sums[b]));
        sums.of[t] = _mm256_fnmadd_ps(msum, _mm256_mul_ps(m, dx), sums.of[t]);
      }
    }
  }
}

// Eight finished outputs of token t.
inline void store_rows(const LinearTask& task, int64_t t, int64_t row, __m256 product) {
  float* out = task.out + t * task.out_stride + row;
  if (row + 8 <= task.row_end) {
    if (task.accumulate) product = _mm256_add_ps(_mm256_loadu_ps(out), product);
    _mm256_storeu_ps(out, product);
    return;
  }
  float rows[8];
  _mm256_storeu_ps(rows, product);
  for (int64_t r = 0; r < task.row_end - row; ++r) out[r] = task.accumulate ? out[r] + rows[r] : rows[r];
}

// Tokens [first_token, first_token + kTokens) of the task.
template <InterleavedFormat kFormat, int kTokens, StreamPolicy kPolicy = StreamPolicy{}>
inline void gemv(const LinearTask& task, int64_t first_token) {
  using Layout = InterleavedBlock<kFormat>;
  constexpr int64_t kTurn = kPolicy.turn_bytes / Layout::kBytes > 1 ? kPolicy.turn_bytes / Layout::kBytes : 1;
  const int64_t blocks = task.k / kFormat.block;
  const int64_t group_bytes = blocks * Layout::kBytes;
  const int64_t first_group = task.row_begin / kInterleavedRows;
  const int64_t groups = (task.row_end + kInterleavedRows - 1) / kInterleavedRows - first_group;
  // Several streams are for memory; what has been prefetched into a core's cache is read as one.
  const int64_t max_streams = task.prefetch != nullptr ? 1 : kPolicy.streams;
  const int64_t part = (groups + max_streams - 1) / max_streams;
  Prefetcher<kPolicy> prefetcher(task);

  decltype(activation_row<kFormat.block>(nullptr, 0, 0)) x[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = activation_row<kFormat.block>(task.activations, first_token + t, task.k);
  }
  for (int64_t i = 0; i < part; ++i) {
    GroupSums<kTokens> sums[kPolicy.streams] = {};
    int64_t at[kPolicy.streams];
    int streams = 0;
    for (int64_t g = i; g < groups; g += part) at[streams++] = first_group + g;
    for (int64_t b = 0; b < blocks; b += kTurn) {
      const int64_t count = blocks - b < kTurn ? blocks - b : kTurn;
      for (int s = 0; s < streams; ++s) {
        const uint8_t* group = static_cast<const uint8_t*>(task.weight) + at[s] * group_bytes;
        add_blocks<kFormat, kTokens, kPolicy>(group, x, b, count, sums[s], prefetcher);
      }
    }
    for (int s = 0; s < streams; ++s) {
      for (int t = 0; t < kTokens; ++t) {
        store_rows(task, first_token + t, at[s] * kInterleavedRows, sums[s].of[t]);
      }
    }
  }
}

// Up to this many tokens need one pass over the weights, on every table.
inline constexpr int64_t kPrefetchTokens = 3;

// Any number of tokens, up to four for each pass over the weights.
template <InterleavedFormat kFormat>
inline void run_gemv(const LinearTask& task) noexcept {
  int64_t t = 0;
  for (; t + 4 <= task.tokens; t += 4) gemv<kFormat, 4>(task, t);
  switch (task.tokens - t) {
    case 1:
      return gemv<kFormat, 1>(task, t);
    case 2:
      return gemv<kFormat, 2>(task, t);
    case 3:
      return gemv<kFormat, 3>(task, t);
    default:
      return;
  }
}

inline int64_t no_scratch(int64_t /*k*/, int64_t /*tokens*/) {
  return 0;
}

// make<format>(dtype): the kernel of each quantized format.
template <typename Make>
inline void fill_quantized(KernelTable& table, Make make) {
#define QUANTIZED(name, Name, ...) \
  table.linear[static_cast<int>(DType::name)] = make.template operator()<kFormat##Name>(DType::name);
#include "tensor/weight_formats.inc"
}

}  // namespace
}  // namespace inferno
