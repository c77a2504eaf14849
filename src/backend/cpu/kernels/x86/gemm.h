// Quantized weights times a few tokens with the 512-bit 8-bit dot products: small batches. Bit-equal to
// quant/numerics.h.
//
// Two groups are unpacked, losslessly, into a panel of 16 rows: for each 4 columns one vector of levels (16 rows x 4
// columns, the offset of signed formats added), scales widened, one lane per row. A panel is unpacked once and
// multiplied by all tokens, whose columns are memory operands of the instruction, broadcast four at a time.
//
// Few tokens times blocks of 32 need no panel in memory: a block is unpacked into registers and multiplied by all of
// them.
//
// While a panel is multiplied, however often, the rows of the next one are on their way from memory.
#pragma once

#include "backend/cpu/kernels/x86/panel.h"

namespace inferno {
namespace {

inline constexpr int64_t kGemmTokens = 4;  // panels from this many tokens on
static_assert(kPrefetchTokens < kGemmTokens);

inline __m512i sixteen_columns(const void* four_bytes) {
  int32_t four;
  __builtin_memcpy(&four, four_bytes, 4);
  return _mm512_set1_epi32(four);
}

// Adds levels times four columns of a token, or pairs of 16 bits times one pair, which are the instruction's memory
// operand: gcc 12 would load them by an instruction of their own, twice as many in all.
struct FourBytes {
  char of[4];
};
inline __m512i dot_columns(__m512i sum, __m512i levels, const void* four_bytes) {
#if defined(__clang__)
  return _mm512_dpbusd_epi32(sum, levels, sixteen_columns(four_bytes));
#else
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(levels), "m"(*static_cast<const FourBytes*>(four_bytes)));
  return sum;
#endif
}
inline __m512i dot_pair(__m512i sum, __m512i pairs, const void* pair) {
#if defined(__clang__)
  return _mm512_dpwssd_epi32(sum, pairs, sixteen_columns(pair));
#else
  __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(pairs), "m"(*static_cast<const FourBytes*>(pair)));
  return sum;
#endif
}

// One block of a panel.
template <InterleavedFormat kFormat>
struct Panel {
  static constexpr int kSubs = kFormat.block / kFormat.sub;
  static constexpr bool kScaled = kFormat.block == 256;
  static constexpr int kD = 16 * kFormat.block;                       // f32[16]
  static constexpr int kM = kD + 64;                                  // f32[16]
  static constexpr int kScales = kM + (kFormat.minimums ? 64 : 0);    // int32[16] per sub-block
  static constexpr int kMins = kScales + (kScaled ? 64 * kSubs : 0);  // int16[16][2] per two sub-blocks
  static constexpr int kBytes = kMins + (kScaled && kFormat.minimums ? 32 * kSubs : 0);
};

template <InterleavedFormat kFormat>
inline void unpack_panel(const uint8_t* block, int half, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = Panel<kFormat>;
  constexpr bool kSigned = !kFormat.minimums;
  unpack_scales<kFormat>(block, half, panel + P::kD, panel + P::kM);
  for (int tile = 0; tile < kFormat.block / 32; ++tile) {
    __m256i w[8];
    tile_levels<kFormat>(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    for (int c = 0; c < 8; ++c) {
      if constexpr (kFormat.level_bits() == 8) w[c] = _mm256_xor_si256(w[c], _mm256_set1_epi8(-128));
      store_256(panel + (8 * tile + c) * 64 + 32 * half, w[c]);
    }
  }
  if constexpr (P::kScaled) {
    for (int i = 0; i < P::kSubs / 4; ++i) {
      const __m256i scales = load_sub_scales<kFormat>(block, i);
      uint8_t* to = panel + P::kScales + 256 * i + 32 * half;
      store_256(to, scale_values<0, kSigned>(scales));
      store_256(to + 64, scale_values<1, kSigned>(scales));
      store_256(to + 128, scale_values<2, kSigned>(scales));
      store_256(to + 192, scale_values<3, kSigned>(scales));
    }
    if constexpr (kFormat.minimums) unpack_minimums<kFormat>(block, half, panel + P::kMins);
  }
}

// The weights of the 16 rows after those of `row`, requested in equal steps.
class NextPanel {
 public:
  NextPanel(const LinearTask& task, int64_t row, int64_t group_bytes, int64_t steps)
      : at_(static_cast<const uint8_t*>(task.weight) + (row + kPanelRows) / kInterleavedRows * group_bytes),
        end_(at_ + kPanelRows / kInterleavedRows * group_bytes) {
    const int64_t lines = (end_ - at_ + 63) / 64;
    step_ = (lines + steps - 1) / steps * 64;
  }
  [[gnu::always_inline]] void request_some() {
    const uint8_t* const end = at_ + step_ < end_ ? at_ + step_ : end_;
    for (; at_ < end; at_ += 64) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  int64_t step_;
};

// 16 rows x kTokens tokens x 4 * kVectors columns, added to c.
template <int kVectors, int kTokens, typename Row>
inline void multiply_columns(const uint8_t* levels, const Row* x, int64_t column, __m512i (&c)[kTokens]) {
  for (int v = 0; v < kVectors; ++v) {
    const __m512i w = load_512(levels + 64 * v);
    for (int t = 0; t < kTokens; ++t) c[t] = dot_columns(c[t], w, x[t].q + column + 4 * v);
  }
}

// One link of the chain for 16 rows; with a minus, of the negative of isum.
inline __m512 chain_512(__m512 acc, __m512i isum, __m512 dw, __m512 dx) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum), _mm512_mul_ps(dw, dx), acc);
}
inline __m512 minus_chain_512(__m512 acc, __m512i isum, __m512 dw, __m512 dx) {
  return _mm512_fnmadd_ps(_mm512_cvtepi32_ps(isum), _mm512_mul_ps(dw, dx), acc);
}

// mins: int16[16][2] per two sub-blocks.
template <InterleavedFormat kFormat>
inline __m512i minimum_dot_512(const uint8_t* mins, const BlockSums& sums) {
  const int16_t* by_sub = kFormat.sub == 32 ? sums.plain_32 : sums.plain_16;
  __m512i total = _mm512_setzero_si512();
  for (int i = 0; i < InterleavedBlock<kFormat>::kSubs / 2; ++i) {
    total = dot_pair(total, load_512(mins + 64 * i), by_sub + 2 * i);
  }
  return total;
}

// What unpacking adds to a block's sum, negative: int32[tokens][blocks], where the sums begin.
template <InterleavedFormat kFormat>
inline void level_offsets(const LinearTask& task, int32_t* offsets) {
  const int64_t blocks = task.k / 32;
  for (int64_t t = 0; t < task.tokens; ++t) {
    const Row32 x = row_32(task.activations, t, task.k);
    for (int64_t b = 0; b < blocks; ++b) {
      offsets[t * blocks + b] = kFormat.signed_levels() ? -(x.sums[b] << kOffsetShift<kFormat>) : 0;
    }
  }
}

template <InterleavedFormat kFormat, int kTokens>
inline void panel_products(const uint8_t* panel, const Row256* x, int64_t blocks, NextPanel& next,
                           __m512 (&out)[kTokens]) {
  using P = Panel<kFormat>;
  __m512 sums[kTokens] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = panel + b * P::kBytes;
    __m512i isum[kTokens] = {};
    __m512i offset[kTokens] = {};
    for (int j = 0; j < P::kSubs; ++j) {
      next.request_some();
      __m512i c[kTokens] = {};
      multiply_columns<kFormat.sub / 4>(block + 16 * kFormat.sub * j, x, b * 256 + kFormat.sub * j, c);
      const __m512i scale = load_512(block + P::kScales + 64 * j);
      for (int t = 0; t < kTokens; ++t) {
        isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(c[t], scale));
        // The sum is in the low half and multiplied by the scale's low half; zero by the scale's sign.
        if constexpr (kFormat.signed_levels()) {
          const BlockSums& q_sums = x[t].sums[b];
          const int32_t sum = kFormat.sub == 32 ? low_half(q_sums.plain_32[j]) : q_sums.low_16[j];
          offset[t] = _mm512_dpwssd_epi32(offset[t], scale, _mm512_set1_epi32(sum));
        }
      }
    }
    const __m512 d = _mm512_loadu_ps(floats(block + P::kD));
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (kFormat.signed_levels()) {
        isum[t] = _mm512_sub_epi32(isum[t], _mm512_slli_epi32(offset[t], kOffsetShift<kFormat>));
      }
      const __m512 dx = _mm512_set1_ps(x[t].d[b]);
      sums[t] = chain_512(sums[t], isum[t], d, dx);
      if constexpr (kFormat.minimums) {
        const __m512i msum = minimum_dot_512<kFormat>(block + P::kMins, x[t].sums[b]);
        sums[t] = minus_chain_512(sums[t], msum, _mm512_loadu_ps(floats(block + P::kM)), dx);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) out[t] = sums[t];
}

template <InterleavedFormat kFormat, int kTokens>
inline void panel_tokens(const LinearTask& task, const uint8_t* panel, NextPanel& next, int64_t row, int64_t token) {
  Row256 x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = row_256(task.activations, token + t, task.k);
  __m512 products[kTokens];
  panel_products<kFormat>(panel, x, task.k / kFormat.block, next, products);
  for (int t = 0; t < kTokens; ++t) store_panel_rows(task, token + t, row, products[t]);
}

// The 16 rows from `row` times the tokens [token, token + kTokens), blocks of 32 columns.
template <InterleavedFormat kFormat, int kTokens>
inline void stream_panel(const LinearTask& task, NextPanel& next, int64_t row, int64_t token) {
  using Layout = InterleavedBlock<kFormat>;
  const int64_t blocks = task.k / 32;
  const int64_t group_bytes = blocks * Layout::kBytes;
  const uint8_t* first = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * group_bytes;
  const uint8_t* second = row + kInterleavedRows < task.row_end ? first + group_bytes : first;
  const int32_t* offsets = static_cast<const int32_t*>(task.scratch) + token * blocks;
  Row32 x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = row_32(task.activations, token + t, task.k);
  const auto joined = [](__m256 a, __m256 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); };
  __m512 sums[kTokens] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = b * Layout::kBytes;
    next.request_some();
    __m256i low[8];
    __m256i high[8];
    tile_levels<kFormat>(first + at + Layout::kTiles, low);
    tile_levels<kFormat>(second + at + Layout::kTiles, high);
    __m512i w[8];
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      w[v] = _mm512_inserti64x4(_mm512_castsi256_si512(low[v]), high[v], 1);
      if constexpr (kFormat.level_bits() == 8) w[v] = _mm512_xor_si512(w[v], _mm512_set1_epi8(-128));
    }
    const __m512 d = joined(load_d<kFormat>(first + at + Layout::kD), load_d<kFormat>(second + at + Layout::kD));
    __m512 m = _mm512_setzero_ps();
    if constexpr (kFormat.minimums) {
      m = joined(load_scales(first + at + Layout::kM), load_scales(second + at + Layout::kM));
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      __m512i c = _mm512_set1_epi32(offsets[t * blocks + b]);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) c = dot_columns(c, w[v], x[t].q + b * 32 + 4 * v);
      const __m512 dx = _mm512_set1_ps(x[t].d[b]);
      sums[t] = chain_512(sums[t], c, d, dx);
      if constexpr (kFormat.minimums) sums[t] = chain_512(sums[t], _mm512_set1_epi32(x[t].sums[b]), m, dx);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_panel_rows(task, token + t, row, sums[t]);
}

template <InterleavedFormat kFormat>
inline void stream_panel(const LinearTask& task, NextPanel& next, int64_t row, int64_t token, int64_t count) {
  switch (count) {
    case 4:
      return stream_panel<kFormat, 4>(task, next, row, token);
    case 5:
      return stream_panel<kFormat, 5>(task, next, row, token);
    case 6:
      return stream_panel<kFormat, 6>(task, next, row, token);
    case 7:
      return stream_panel<kFormat, 7>(task, next, row, token);
    default:
      return stream_panel<kFormat, 8>(task, next, row, token);
  }
}

// Blocks of 32 are multiplied as above, up to eight tokens at a time: more do not fit the registers, and the second
// eight find a panel in the cache.
inline constexpr int64_t kStreamTokens = 16;

template <InterleavedFormat kFormat>
inline void stream_panels(const LinearTask& task) {
  level_offsets<kFormat>(task, static_cast<int32_t*>(task.scratch));
  const int64_t blocks = task.k / 32;
  const int64_t half = task.tokens <= 8 ? task.tokens : (task.tokens + 1) / 2;
  const int64_t passes = half < task.tokens ? 2 : 1;
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    NextPanel next(task, row, blocks * InterleavedBlock<kFormat>::kBytes, passes * blocks);
    stream_panel<kFormat>(task, next, row, 0, half);
    if (half < task.tokens) stream_panel<kFormat>(task, next, row, half, task.tokens - half);
  }
}

template <InterleavedFormat kFormat>
inline void multiply_panels(const LinearTask& task) {
  using P = Panel<kFormat>;
  auto* panel = static_cast<uint8_t*>(task.scratch);
  const int64_t blocks = task.k / kFormat.block;
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    for_panel_blocks<kFormat>(task, row, [panel](const uint8_t* block, int half, int64_t b) {
      unpack_panel<kFormat>(block, half, panel + b * P::kBytes);
    });
    NextPanel next(task, row, blocks * InterleavedBlock<kFormat>::kBytes, task.tokens / 4 * blocks * P::kSubs);
    int64_t t = 0;
    for (; t + 4 <= task.tokens; t += 4) panel_tokens<kFormat, 4>(task, panel, next, row, t);
    for (; t < task.tokens; ++t) panel_tokens<kFormat, 1>(task, panel, next, row, t);
  }
}

template <InterleavedFormat kFormat>
inline int64_t gemm_scratch(int64_t k, int64_t tokens) {
  if (tokens < kGemmTokens) return 0;
  return kFormat.block == 32 ? tokens * (k / 32) * 4 : k / kFormat.block * Panel<kFormat>::kBytes;
}

// Up to kStreamTokens tokens.
template <InterleavedFormat kFormat>
inline void run_gemm(const LinearTask& task) noexcept {
  if (task.tokens < kGemmTokens) {
    run_gemv<kFormat>(task);
  } else if constexpr (kFormat.block == 32) {
    stream_panels<kFormat>(task);
  } else {
    multiply_panels<kFormat>(task);
  }
}

}  // namespace
}  // namespace inferno
