// Quantized weights times one to four activation rows: decoding. Bit-equal to quant/numerics.h.
//
// The range of groups is split into distant streams that are read in lockstep, a few blocks at a time: a core reaches a
// quarter more memory bandwidth with several streams than with one.
#pragma once

#include <type_traits>

#include "backend/cpu/kernels/arm/activations.h"
#include "backend/cpu/kernels/arm/dot.h"
#include "backend/cpu/kernels/arm/unpack.h"

namespace inferno {
namespace {

inline constexpr int kStreams = 4;
// Bytes of a stream before the next one's turn: long enough to hide the switch, short enough to keep all streams
// running.
inline constexpr int kTurnBytes = 2048;

// Running sums of one group for kTokens tokens.
template <int kTokens>
struct GroupSums {
  float32x4_t of[kTokens][2];
};

// Sums of 16 columns for both halves of a group: [half][columns 0-15, 16-31]. Interleaved because a chain of
// dot products is bound by its latency: four short independent chains keep the core busy.
struct TileDots {
  RowSums of[2][2];
};
template <int kLane>
inline void add_dots(TileDots& dots, const int8x16_t (&w)[2][8], const int8x16_t* x) {
  add_dot<kLane>(dots.of[0][0], w[0][kLane], x[0]);
  add_dot<kLane>(dots.of[1][0], w[1][kLane], x[0]);
  add_dot<kLane>(dots.of[0][1], w[0][4 + kLane], x[1]);
  add_dot<kLane>(dots.of[1][1], w[1][4 + kLane], x[1]);
}
inline TileDots tile_dots(const int8x16_t (&w)[2][8], const int8x16_t* x) {
  TileDots dots = {{{zero_sums(), zero_sums()}, {zero_sums(), zero_sums()}}};
  add_dots<0>(dots, w, x);
  add_dots<1>(dots, w, x);
  add_dots<2>(dots, w, x);
  add_dots<3>(dots, w, x);
  return dots;
}
// All 32 columns of half h.
inline int32x4_t whole(const TileDots& dots, int h) {
  return vaddq_s32(finish(dots.of[h][0]), finish(dots.of[h][1]));
}

// The sums of all 32 columns with one chain per half: no addition, and the scaling by integers hides
// the latency.
struct HalfDots {
  RowSums of[2];
};
template <int kLane>
inline void add_half_dots(HalfDots& dots, const int8x16_t (&w)[2][8], int first, int8x16_t x) {
  add_dot<kLane>(dots.of[0], w[0][first + kLane], x);
  add_dot<kLane>(dots.of[1], w[1][first + kLane], x);
}
inline HalfDots half_dots(const int8x16_t (&w)[2][8], const int8x16_t* x) {
  HalfDots dots = {{zero_sums(), zero_sums()}};
  for (int i = 0; i < 2; ++i) {
    add_half_dots<0>(dots, w, 4 * i, x[i]);
    add_half_dots<1>(dots, w, 4 * i, x[i]);
    add_half_dots<2>(dots, w, 4 * i, x[i]);
    add_half_dots<3>(dots, w, 4 * i, x[i]);
  }
  return dots;
}

// `count` blocks of 32 columns from block `first`.
template <InterleavedFormat kFormat, int kTokens>
inline void add_blocks_32(const uint8_t* group, const Row32* x, int64_t first, int64_t count,
                          GroupSums<kTokens>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  GroupSums<kTokens> s = sums;
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const EightScales d = load_d<kFormat>(block + Layout::kD);
    int8x16_t q[kTokens][2];
    for (int t = 0; t < kTokens; ++t) {
      q[t][0] = vld1q_s8(x[t].q + b * 32);
      q[t][1] = vld1q_s8(x[t].q + b * 32 + 16);
    }
    int8x16_t w[2][8];
    tile_levels<kFormat>(block + Layout::kTiles, w[0]);
    tile_levels<kFormat>(block + Layout::kTiles + Layout::kTileBytes, w[1]);
    for (int t = 0; t < kTokens; ++t) {
      const TileDots dots = tile_dots(w, q[t]);
      const float32x4_t low = to_f32<Layout::kFraction>(whole(dots, 0));
      const float32x4_t high = to_f32<Layout::kFraction>(whole(dots, 1));
      s.of[t][0] = vfmaq_f32(s.of[t][0], low, vmulq_n_f32(d.low, x[t].d[b]));
      s.of[t][1] = vfmaq_f32(s.of[t][1], high, vmulq_n_f32(d.high, x[t].d[b]));
    }
    if constexpr (kFormat.minimums) {
      const EightScales m = load_scales(block + Layout::kM);
      for (int t = 0; t < kTokens; ++t) {
        s.of[t][0] = vfmaq_n_f32(s.of[t][0], vmulq_n_f32(m.low, x[t].d[b]), x[t].sums[b]);
        s.of[t][1] = vfmaq_n_f32(s.of[t][1], vmulq_n_f32(m.high, x[t].d[b]), x[t].sums[b]);
      }
    }
  }
  sums = s;
}

// The scales of 4 sub-blocks for 4 rows, as 32-bit factors: out[sub-block].
template <InterleavedFormat kFormat>
inline void widen_scales(const uint8_t* scales, int32x4_t* out) {
  int16x8_t low;
  int16x8_t high;
  if constexpr (kFormat.minimums) {  // unsigned
    uint8x16_t s = vld1q_u8(scales);
    if constexpr (kFormat.joined_scales) s = vandq_u8(s, vdupq_n_u8(15));
    low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s)));
    high = vreinterpretq_s16_u16(vmovl_high_u8(s));
  } else {
    const int8x16_t s = vreinterpretq_s8_u8(vld1q_u8(scales));
    low = vmovl_s8(vget_low_s8(s));
    high = vmovl_high_s8(s);
  }
  out[0] = vmovl_s16(vget_low_s16(low));
  out[1] = vmovl_high_s16(low);
  out[2] = vmovl_s16(vget_low_s16(high));
  out[3] = vmovl_high_s16(high);
}

// Sum over sub-blocks of minimum * sum of q, for the 4 rows of half h.
template <InterleavedFormat kFormat>
inline int32x4_t minimum_dot(const uint8_t* block, int h, const int8_t* sums) {
  using Layout = InterleavedBlock<kFormat>;
  const uint8_t* mins = block + Layout::kMins + h * 4 * Layout::kSubs;
  const auto load = [&](int i) {
    const uint8x16_t v = vld1q_u8(mins + 16 * i);
    return vreinterpretq_s8_u8(kFormat.joined_scales ? vshrq_n_u8(v, 4) : v);
  };
  RowSums high = zero_sums();
  RowSums low = zero_sums();
  if constexpr (Layout::kSubs == 8) {
    const int8x16_t m0 = load(0);
    const int8x16_t m1 = load(1);
    const int8x16_t x = vld1q_s8(sums);  // 8 high parts, 8 low parts
    add_dot<0>(high, m0, x);
    add_dot<1>(high, m1, x);
    add_dot<2>(low, m0, x);
    add_dot<3>(low, m1, x);
  } else {
    const int8x16_t m[4] = {load(0), load(1), load(2), load(3)};
    add_dot_16(high, m, vld1q_s8(sums + 16));
    add_dot_16(low, m, vld1q_s8(sums + 32));
  }
  return vaddq_s32(vshlq_n_s32(finish(high), 6), finish(low));
}

// `count` super-blocks of 256 columns from super-block `first`.
template <InterleavedFormat kFormat, int kTokens>
inline void add_blocks_256(const uint8_t* group, const Row256* x, int64_t first, int64_t count,
                           GroupSums<kTokens>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const EightScales d = load_d<kFormat>(block + Layout::kD);
    int32x4_t isum[kTokens][2] = {};
    // 128 columns have 4 sub-blocks of 32 or 8 of 16.
    for (int part = 0; part < 2; ++part) {
      int32x4_t scale[2][Layout::kSubs / 2];
      for (int h = 0; h < 2; ++h) {
        for (int i = 0; i < Layout::kSubs / 8; ++i) {
          widen_scales<kFormat>(block + Layout::kScales + h * 4 * Layout::kSubs + part * 2 * Layout::kSubs + 16 * i,
                                scale[h] + 4 * i);
        }
      }
      for (int j = 0; j < 4; ++j) {
        const int tile = part * 4 + j;
        int8x16_t w[2][8];
        tile_levels<kFormat>(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w[0]);
        tile_levels<kFormat>(block + Layout::kTiles + (2 * tile + 1) * Layout::kTileBytes, w[1]);
        for (int t = 0; t < kTokens; ++t) {
          const int8_t* q = x[t].q + b * 256 + tile * 32;
          const int8x16_t x16[2] = {vld1q_s8(q), vld1q_s8(q + 16)};
          if constexpr (kFormat.sub == 32) {
            const HalfDots dots = half_dots(w, x16);
            for (int h = 0; h < 2; ++h) isum[t][h] = vmlaq_s32(isum[t][h], finish(dots.of[h]), scale[h][j]);
          } else {
            const TileDots dots = tile_dots(w, x16);
            for (int h = 0; h < 2; ++h) {
              isum[t][h] = vmlaq_s32(isum[t][h], finish(dots.of[h][0]), scale[h][2 * j]);
              isum[t][h] = vmlaq_s32(isum[t][h], finish(dots.of[h][1]), scale[h][2 * j + 1]);
            }
          }
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const float dx = x[t].d[b];
      sums.of[t][0] = vfmaq_f32(sums.of[t][0], to_f32<Layout::kFraction>(isum[t][0]), vmulq_n_f32(d.low, dx));
      sums.of[t][1] = vfmaq_f32(sums.of[t][1], to_f32<Layout::kFraction>(isum[t][1]), vmulq_n_f32(d.high, dx));
      if constexpr (kFormat.minimums) {
        const EightScales m = load_scales(block + Layout::kM);
        const int8_t* q_sums = x[t].sums + b * kSumBytes;
        const float32x4_t low = vcvtq_f32_s32(minimum_dot<kFormat>(block, 0, q_sums));
        const float32x4_t high = vcvtq_f32_s32(minimum_dot<kFormat>(block, 1, q_sums));
        sums.of[t][0] = vfmsq_f32(sums.of[t][0], low, vmulq_n_f32(m.low, dx));
        sums.of[t][1] = vfmsq_f32(sums.of[t][1], high, vmulq_n_f32(m.high, dx));
      }
    }
  }
}

// Eight finished outputs of token t.
inline void store_rows(const LinearTask& task, int64_t t, int64_t row, float32x4_t low, float32x4_t high) {
  float* out = task.out + t * task.out_stride + row;
  if (row + 8 <= task.row_end) {
    if (task.accumulate) {
      low = vaddq_f32(vld1q_f32(out), low);
      high = vaddq_f32(vld1q_f32(out + 4), high);
    }
    vst1q_f32(out, low);
    vst1q_f32(out + 4, high);
    return;
  }
  float rows[8];
  vst1q_f32(rows, low);
  vst1q_f32(rows + 4, high);
  for (int64_t r = 0; r < task.row_end - row; ++r) out[r] = task.accumulate ? out[r] + rows[r] : rows[r];
}

// Visits the blocks of all groups of the task in distant streams, round-robin: add(group, first, count, sums) for each
// turn of a stream, store(row, sums) when a group is complete.
template <InterleavedFormat kFormat, typename Sums, typename Add, typename Store>
inline void walk_streams(const LinearTask& task, const Add& add, const Store& store) {
  using Layout = InterleavedBlock<kFormat>;
  constexpr int64_t kTurn = kTurnBytes / Layout::kBytes > 1 ? kTurnBytes / Layout::kBytes : 1;
  const int64_t blocks = task.k / kFormat.block;
  const int64_t group_bytes = blocks * Layout::kBytes;
  const int64_t first_group = task.row_begin / kInterleavedRows;
  const int64_t groups = (task.row_end + kInterleavedRows - 1) / kInterleavedRows - first_group;
  const int64_t part = (groups + kStreams - 1) / kStreams;
  for (int64_t i = 0; i < part; ++i) {
    Sums sums[kStreams] = {};
    int64_t at[kStreams];
    int streams = 0;
    for (int64_t g = i; g < groups; g += part) at[streams++] = first_group + g;
    for (int64_t b = 0; b < blocks; b += kTurn) {
      const int64_t count = blocks - b < kTurn ? blocks - b : kTurn;
      for (int s = 0; s < streams; ++s) {
        add(static_cast<const uint8_t*>(task.weight) + at[s] * group_bytes, b, count, sums[s]);
      }
    }
    for (int s = 0; s < streams; ++s) store(at[s] * kInterleavedRows, sums[s]);
  }
}

// Tokens [first_token, first_token + kTokens) of the task.
template <InterleavedFormat kFormat, int kTokens>
inline void gemv(const LinearTask& task, int64_t first_token) {
  using Row = std::conditional_t<kFormat.block == 32, Row32, Row256>;
  Row x[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (kFormat.block == 32) {
      x[t] = row_32(task.activations, first_token + t, task.k);
    } else {
      x[t] = row_256(task.activations, first_token + t, task.k);
    }
  }
  using Sums = GroupSums<kTokens>;
  const auto add = [&](const uint8_t* group, int64_t first, int64_t count, Sums& sums) {
    if constexpr (kFormat.block == 32) {
      add_blocks_32<kFormat, kTokens>(group, x, first, count, sums);
    } else {
      add_blocks_256<kFormat, kTokens>(group, x, first, count, sums);
    }
  };
  const auto store = [&](int64_t row, const Sums& sums) {
    for (int t = 0; t < kTokens; ++t) store_rows(task, first_token + t, row, sums.of[t][0], sums.of[t][1]);
  };
  walk_streams<kFormat, Sums>(task, add, store);
}

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

template <InterleavedFormat kFormat>
inline LinearKernel gemv_kernel(const char* name, DType dtype) {
  return {name,       &interleaved_layout(dtype), kFormat.block == 32 ? &kRows32 : &kRows256, kInterleavedRows,
          no_scratch, run_gemv<kFormat>};
}

inline void fill_quantized_gemv(KernelTable& table, const char* table_name) {
#define QUANTIZED(name, Name, ...) \
  table.linear[static_cast<int>(DType::name)] = gemv_kernel<kFormat##Name>(table_name, DType::name);
#include "tensor/weight_formats.inc"
}

}  // namespace
}  // namespace inferno
