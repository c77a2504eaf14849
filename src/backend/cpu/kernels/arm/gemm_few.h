// Quantized weights times few tokens on a CPU with the 8-bit matrix instructions: decoding, small batches, and small
// chunks of a prompt beside them. Eight tokens at a time are multiplied by a group of rows as it is stored: unpacking
// it into a panel first (gemm.h) would cost more than the product. Bit-equal to quant/numerics.h.
//
// Q8_0 is stored by pairs of rows, as the instruction reads it. Levels of fewer bits are rearranged in registers, and
// up to three tokens use the dot products of gemv.h, which need fewer instructions there: decoding one token is faster
// that way.
#pragma once

#include "backend/cpu/kernels/arm/gemm_activations.h"
#include "backend/cpu/kernels/arm/gemm_few_q8_0.h"
#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {
namespace {

// [row pair of a half][token pair], each a 2 x 2 result.
template <int kPairs>
struct FewSums {
  float32x4_t of[2][kPairs];
};
// Both halves of a group.
template <int kPairs>
struct FewGroup {
  FewSums<kPairs> half[2];
};

// Four scales, one per row, doubled for the two row pairs.
inline void double_scales(float32x4_t scales, float32x4_t (&out)[2]) {
  out[0] = vzip1q_f32(scales, scales);
  out[1] = vzip2q_f32(scales, scales);
}
inline float32x4_t half_of(const EightScales& scales, int half) {
  return half == 0 ? scales.low : scales.high;
}
inline float32x4_t vector_f32(const int8_t* at) {
  return vreinterpretq_f32_s8(vld1q_s8(at));
}

// Vectors of 4 columns x 4 rows -> vectors of 8 columns x 2 rows.
inline int8x16_t rows_01(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
inline int8x16_t rows_23(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

// c += steps [first, last) of 8 columns of a tile. x[j] + at: the pair's vector of step 0 of the tile.
template <bool kRowPairs, int kFirst, int kLast, int kPairs>
inline void multiply_tile(const int8x16_t (&w)[8], const int8_t* const (&x)[kPairs], int64_t at,
                          int32x4_t (&c)[2][kPairs]) {
  for (int s = kFirst; s < kLast; ++s) {
    const int8x16_t first = kRowPairs ? w[2 * s] : rows_01(w[2 * s], w[2 * s + 1]);
    const int8x16_t second = kRowPairs ? w[2 * s + 1] : rows_23(w[2 * s], w[2 * s + 1]);
    for (int j = 0; j < kPairs; ++j) {
      const int8x16_t token = vld1q_s8(x[j] + at + s * FewLayout::kStep);
      c[0][j] = vmmlaq_s32(c[0][j], first, token);
      c[1][j] = vmmlaq_s32(c[1][j], second, token);
    }
  }
}

// ---- plain formats --------------------------------------------------------------------------------------------------

// sums = a group times the pairs at x. Both halves of a block before the next block: the weights are read once, as one
// sequential stream.
template <InterleavedFormat kFormat, int kPairs>
inline void few_32(const uint8_t* group, const int8_t* const (&x)[kPairs], int64_t blocks, FewGroup<kPairs>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  using X = FewLayout;
  if constexpr (kUseAssembly && kFormat.row_pairs && kPairs == 4) {
    static_assert(Layout::kD == 0 && Layout::kTiles == 16 && Layout::kBytes == 272);
    static_assert(X::kStep == 32 && X::kBlock32 == 160 && X::kD32 == 128);
    few_q8_0(group, x[0], x[2], blocks, &sums.half[0].of[0][0]);
    return;
  }
  FewGroup<kPairs> s = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    for (int half = 0; half < 2; ++half) {
      int8x16_t w[8];
      tile_levels<kFormat>(block + Layout::kTiles + half * Layout::kTileBytes, w);
      int32x4_t c[2][kPairs];
      for (int j = 0; j < kPairs; ++j) c[0][j] = c[1][j] = zero_s32();
      multiply_tile<kFormat.row_pairs, 0, 4>(w, x, b * X::kBlock32, c);
      float32x4_t d[2];
      double_scales(half_of(load_d<kFormat>(block + Layout::kD), half), d);
      for (int j = 0; j < kPairs; ++j) {
        const float32x4_t dx = vector_f32(x[j] + b * X::kBlock32 + X::kD32);
        for (int i = 0; i < 2; ++i) {
          float32x4_t& sum = s.half[half].of[i][j];
          sum = vfmaq_f32(sum, to_f32<Layout::kFraction>(c[i][j]), vmulq_f32(d[i], dx));
        }
        if constexpr (kFormat.minimums) {
          float32x4_t m[2];
          double_scales(half_of(load_scales(block + Layout::kM), half), m);
          const float32x4_t q_sum = vector_f32(x[j] + blocks * X::kBlock32 + b * X::kStep);
          for (int i = 0; i < 2; ++i) {
            float32x4_t& sum = s.half[half].of[i][j];
            sum = vfmaq_f32(sum, q_sum, vmulq_f32(m[i], dx));
          }
        }
      }
    }
  }
  sums = s;
}

// ---- K formats ------------------------------------------------------------------------------------------------------

// One super-block: isum = the integer sums over its sub-blocks, scaled.
template <InterleavedFormat kFormat, int kPairs>
inline void few_scaled_sums(const uint8_t* block, int half, const int8_t* const (&x)[kPairs], int64_t at,
                            int32x4_t (&isum)[2][kPairs]) {
  using Layout = InterleavedBlock<kFormat>;
  constexpr int64_t kStep = FewLayout::kStep;
  constexpr int kSubsPerTile = 32 / kFormat.sub;
  constexpr int kTilesPerLoad = 4 / kSubsPerTile;
  const auto scale = [&](const int32x4_t(&c)[2][kPairs], int32x4_t by) {
    const int32x4_t low = vzip1q_s32(by, by);
    const int32x4_t high = vzip2q_s32(by, by);
    for (int j = 0; j < kPairs; ++j) {
      isum[0][j] = vmlaq_s32(isum[0][j], c[0][j], low);
      isum[1][j] = vmlaq_s32(isum[1][j], c[1][j], high);
    }
  };
  for (int first = 0; first < 8; first += kTilesPerLoad) {
    int32x4_t scales[4];
    widen_scales<kFormat>(block + Layout::kScales + half * 4 * Layout::kSubs + first * kSubsPerTile * 4, scales);
    for (int i = 0; i < kTilesPerLoad; ++i) {
      const int tile = first + i;
      int8x16_t w[8];
      tile_levels<kFormat>(block + Layout::kTiles + (2 * tile + half) * Layout::kTileBytes, w);
      if constexpr (kSubsPerTile == 1) {
        int32x4_t c[2][kPairs] = {};
        multiply_tile<false, 0, 4>(w, x, at + tile * 4 * kStep, c);
        scale(c, scales[i]);
      } else {
        int32x4_t c[2][kPairs] = {};
        multiply_tile<false, 0, 2>(w, x, at + tile * 4 * kStep, c);
        scale(c, scales[2 * i]);
        int32x4_t e[2][kPairs] = {};
        multiply_tile<false, 2, 4>(w, x, at + tile * 4 * kStep, e);
        scale(e, scales[2 * i + 1]);
      }
    }
  }
}

// sums += one super-block of a half.
template <InterleavedFormat kFormat, int kPairs>
inline void add_few_256(const uint8_t* block, int half, const int8_t* const (&x)[kPairs], int64_t at,
                        FewSums<kPairs>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  using X = FewLayout;
  int32x4_t isum[2][kPairs] = {};
  few_scaled_sums<kFormat>(block, half, x, at, isum);
  float32x4_t d[2];
  double_scales(half_of(load_d<kFormat>(block + Layout::kD), half), d);
  float32x4_t m[2] = {};
  int8x16_t mins[2][2] = {};  // [8 sub-blocks][row pair]
  if constexpr (kFormat.minimums) {
    double_scales(half_of(load_scales(block + Layout::kM), half), m);
    for (int part = 0; part < Layout::kSubs / 8; ++part) {
      int8x16_t four[2];
      for (int i = 0; i < 2; ++i) {
        const uint8x16_t v = vld1q_u8(block + Layout::kMins + half * 4 * Layout::kSubs + 32 * part + 16 * i);
        four[i] = vreinterpretq_s8_u8(kFormat.joined_scales ? vshrq_n_u8(v, 4) : v);
      }
      mins[part][0] = rows_01(four[0], four[1]);
      mins[part][1] = rows_23(four[0], four[1]);
    }
  }
  for (int j = 0; j < kPairs; ++j) {
    const float32x4_t dx = vector_f32(x[j] + at + X::kD256);
    for (int i = 0; i < 2; ++i) {
      sums.of[i][j] = vfmaq_f32(sums.of[i][j], to_f32<Layout::kFraction>(isum[i][j]), vmulq_f32(d[i], dx));
      if constexpr (kFormat.minimums) {
        const int8_t* q_sums = x[j] + at + (kFormat.sub == 32 ? X::kSums32 : X::kSums16);
        int32x4_t msum = vdupq_n_s32(0);
        for (int part = 0; part < Layout::kSubs / 8; ++part) {
          msum = vmmlaq_s32(msum, mins[part][i], vld1q_s8(q_sums + X::kStep * 2 * part));
        }
        msum = vshlq_n_s32(msum, 6);
        for (int part = 0; part < Layout::kSubs / 8; ++part) {
          msum = vmmlaq_s32(msum, mins[part][i], vld1q_s8(q_sums + X::kStep * (2 * part + 1)));
        }
        sums.of[i][j] = vfmsq_f32(sums.of[i][j], vcvtq_f32_s32(msum), vmulq_f32(m[i], dx));
      }
    }
  }
}

// ---- whole tasks ----------------------------------------------------------------------------------------------------

// Up to this many tokens. Levels of fewer bits are rearranged again for every eight tokens: beyond eight, a panel is
// cheaper. Q8_0 is multiplied as it is stored, a panel only serves its tokens faster (25 cycles for six, 38 for eight).
consteval int64_t few_tokens(InterleavedFormat format) {
  return format.row_pairs ? 40 : 8;
}

// Rows [begin, end) times kPairs pairs of tokens from `token` on, a multiple of eight.
template <InterleavedFormat kFormat, int kPairs>
inline void few(const LinearTask& task, int64_t token, int64_t begin, int64_t end) {
  using Layout = InterleavedBlock<kFormat>;
  const int64_t blocks = task.k / kFormat.block;
  const int8_t* x[kPairs];
  for (int j = 0; j < kPairs; ++j) {
    const int64_t tile = (token / 4 + j / 2) * tile_bytes<kFormat.block, few_tokens(kFormat)>(task.tokens, task.k);
    x[j] = static_cast<const int8_t*>(task.activations) + tile + j % 2 * 16;
  }
  for (int64_t row = begin; row < end; row += kInterleavedRows) {
    const uint8_t* group = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * blocks * Layout::kBytes;
    FewGroup<kPairs> sums;
    if constexpr (kFormat.block == 32) {
      few_32<kFormat, kPairs>(group, x, blocks, sums);
    } else {
      sums = {};
      for (int64_t b = 0; b < blocks; ++b) {
        for (int half = 0; half < 2; ++half) {
          add_few_256<kFormat, kPairs>(group + b * Layout::kBytes, half, x, b * FewLayout::kBlock256, sums.half[half]);
        }
      }
    }
    for (int j = 0; j < kPairs; ++j) {
      const auto& low = sums.half[0].of;
      const auto& high = sums.half[1].of;
      const int64_t t = token + 2 * j;
      if (t >= task.tokens) break;
      store_rows(task, t, row, vuzp1q_f32(low[0][j], low[1][j]), vuzp1q_f32(high[0][j], high[1][j]));
      if (t + 1 == task.tokens) break;
      store_rows(task, t + 1, row, vuzp2q_f32(low[0][j], low[1][j]), vuzp2q_f32(high[0][j], high[1][j]));
    }
  }
}

// The same with as many of the tokens as there are, up to eight.
template <InterleavedFormat kFormat>
inline void up_to_eight(const LinearTask& task, int64_t token, int64_t begin, int64_t end) {
  constexpr int kThreeOrFour = kUseAssembly && kFormat.row_pairs ? 4 : 3;  // assembly: four take less than three do
  switch ((task.tokens - token + 1) / 2) {
    case 1:
      return few<kFormat, 1>(task, token, begin, end);
    case 2:
      return few<kFormat, 2>(task, token, begin, end);
    case 3:
      return few<kFormat, kThreeOrFour>(task, token, begin, end);
    default:
      return few<kFormat, 4>(task, token, begin, end);
  }
}

// kGemmTokens to few_tokens tokens.
template <InterleavedFormat kFormat>
inline void run_few(const LinearTask& task) {
  if (task.tokens <= 8) return up_to_eight<kFormat>(task, 0, task.row_begin, task.row_end);
  // A group of rows stays in the cache while all tokens are multiplied by it.
  for (int64_t row = task.row_begin; row < task.row_end; row += kInterleavedRows) {
    for (int64_t token = 0; token < task.tokens; token += 8) {
      up_to_eight<kFormat>(task, token, row,
                           row + kInterleavedRows < task.row_end ? row + kInterleavedRows : task.row_end);
    }
  }
}

// ---- one to three tokens of Q8_0 ------------------------------------------------------------------------------------

// As add_blocks_32 of gemv.h, for levels by row pairs.
template <int kTokens>
inline void add_row_pairs(const uint8_t* group, const Row32* x, int64_t first, int64_t count,
                          GroupSums<kTokens>& sums) {
  using Layout = InterleavedBlock<kFormatQ8_0Pairs>;
  GroupSums<kTokens> s = sums;
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const EightScales d = load_scales(block + Layout::kD);
    int8x16_t w[2][8];
    unpack_tile<8, true>(block + Layout::kTiles, w[0]);
    unpack_tile<8, true>(block + Layout::kTiles + Layout::kTileBytes, w[1]);
    const auto add = [&](int t, int32x4_t low, int32x4_t high) {
      s.of[t][0] = vfmaq_f32(s.of[t][0], vcvtq_f32_s32(low), vmulq_n_f32(d.low, x[t].d[b]));
      s.of[t][1] = vfmaq_f32(s.of[t][1], vcvtq_f32_s32(high), vmulq_n_f32(d.high, x[t].d[b]));
    };
    for (int t = 0; t < kTokens; t += 2) {
      const bool alone = t + 1 == kTokens;
      int32x4_t c[2][2] = {{zero_s32(), zero_s32()}, {zero_s32(), zero_s32()}};  // [half][row pair], 2 x 2 results
      for (int step = 0; step < 4; ++step) {
        const int64_t at = b * 32 + step * 8;
        const int8x8_t one = vld1_s8(x[t].q + at);
        const int8x16_t pair = vcombine_s8(one, alone ? one : vld1_s8(x[t + !alone].q + at));
        for (int i = 0; i < 2; ++i) {
          for (int half = 0; half < 2; ++half) c[half][i] = vmmlaq_s32(c[half][i], w[half][2 * step + i], pair);
        }
      }
      add(t, vuzp1q_s32(c[0][0], c[0][1]), vuzp1q_s32(c[1][0], c[1][1]));
      if (!alone) add(t + 1, vuzp2q_s32(c[0][0], c[0][1]), vuzp2q_s32(c[1][0], c[1][1]));
    }
  }
  sums = s;
}

template <int kTokens>
inline void gemv_row_pairs(const LinearTask& task) {
  Row32 x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = row_32(task.activations, t, task.k);
  using Sums = GroupSums<kTokens>;
  const auto add = [&](const uint8_t* group, int64_t first, int64_t count, Sums& sums) {
    add_row_pairs<kTokens>(group, x, first, count, sums);
  };
  const auto store = [&](int64_t row, const Sums& sums) {
    for (int t = 0; t < kTokens; ++t) store_rows(task, t, row, sums.of[t][0], sums.of[t][1]);
  };
  walk_streams<kFormatQ8_0Pairs, Sums>(task, add, store);
}

// Fewer than kGemmTokens tokens.
template <InterleavedFormat kFormat>
inline void run_rows(const LinearTask& task) {
  if constexpr (!kFormat.row_pairs) {
    run_gemv<kFormat>(task);
  } else if (task.tokens == 1) {
    gemv_row_pairs<1>(task);
  } else if (task.tokens == 2) {
    gemv_row_pairs<2>(task);
  } else {
    gemv_row_pairs<3>(task);
  }
}

}  // namespace
}  // namespace inferno
