// Quantized weights times more than eight tokens (four to eight: gemm_few.h) with the 8-bit matrix instructions:
// prefill and batches. Bit-equal to quant/numerics.h.
//
// Every format is first unpacked, losslessly, into the same panels: 8 rows of int8 levels in the order of the matrix
// instruction, and scales widened and doubled so that one vector multiply scales a 2 x 2 result. A panel is unpacked
// once and meets all tokens while it is in the first-level cache.
//
// A 2 x 2 result is (row 0 token 0, row 0 token 1, row 1 token 0, row 1 token 1).
#pragma once

#include "backend/cpu/kernels/arm/gemm_activations.h"
#include "backend/cpu/kernels/arm/gemm_few.h"
#include "backend/cpu/kernels/arm/gemm_tiles.h"
#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {
namespace {

// Tiles of kTilePairs = 3 pairs: 12 sums of the matrix instruction cover its latency, and with 12 running sums they
// fill the registers.
static_assert(kTilePairs == 3);

// One block of a panel: 8 rows.
template <InterleavedFormat kFormat>
struct Panel {
  static constexpr int kSubs = kFormat.block / kFormat.sub;
  static constexpr bool kScaled = kFormat.block == 256;
  // Levels: for each 8 columns the row pairs (0,1) (2,3) (4,5) (6,7).
  static constexpr int kLevelBytes = 8 * kFormat.block;
  static constexpr int kD = kLevelBytes;                            // 4 vectors: (d0 d0 d1 d1), ...
  static constexpr int kM = kD + 64;                                // likewise
  static constexpr int kScales = kM + (kFormat.minimums ? 64 : 0);  // int32, 4 vectors per sub-block
  // int8 pairs of rows, for each 8 sub-blocks 4 vectors.
  static constexpr int kMins = kScales + (kScaled ? 64 * kSubs : 0);
  static constexpr int kBytes = kMins + (kScaled && kFormat.minimums ? 8 * kSubs : 0);
};

inline void store_doubled(float32x4_t low, float32x4_t high, uint8_t* out) {
  auto* to = static_cast<float*>(static_cast<void*>(out));
  vst1q_f32(to, vzip1q_f32(low, low));
  vst1q_f32(to + 4, vzip2q_f32(low, low));
  vst1q_f32(to + 8, vzip1q_f32(high, high));
  vst1q_f32(to + 12, vzip2q_f32(high, high));
}

template <InterleavedFormat kFormat>
inline void unpack_levels(const uint8_t* tiles, uint8_t* out) {
  using Layout = InterleavedBlock<kFormat>;
  for (int tile = 0; tile < kFormat.block / 16; ++tile) {
    int8x16_t w[8];
    unpack_tile<kFormat.bits, kFormat.is_signed>(tiles + tile * Layout::kTileBytes, w);
    if constexpr (Layout::kFraction != 0) {
      for (int8x16_t& v : w) v = vshrq_n_s8(v, Layout::kFraction);
    }
    auto* to = static_cast<int8_t*>(static_cast<void*>(out)) + tile / 2 * 256 + tile % 2 * 32;
    for (int s = 0; s < 4; ++s) {
      vst1q_s8(to + 64 * s, rows_01(w[2 * s], w[2 * s + 1]));
      vst1q_s8(to + 64 * s + 16, rows_23(w[2 * s], w[2 * s + 1]));
    }
  }
}

template <InterleavedFormat kFormat>
inline void unpack_block(const uint8_t* block, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = Panel<kFormat>;
  const EightScales d = load_scales(block + Layout::kD);
  store_doubled(d.low, d.high, panel + P::kD);
  if constexpr (kFormat.minimums) {
    const EightScales m = load_scales(block + Layout::kM);
    store_doubled(m.low, m.high, panel + P::kM);
  }
  if constexpr (P::kScaled) {
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < P::kSubs / 4; ++i) {
        int32x4_t scale[4];
        widen_scales<kFormat>(block + Layout::kScales + h * 4 * P::kSubs + 16 * i, scale);
        for (int j = 0; j < 4; ++j) {
          auto* to = static_cast<int32_t*>(static_cast<void*>(panel + P::kScales)) + (4 * i + j) * 16 + h * 8;
          vst1q_s32(to, vzip1q_s32(scale[j], scale[j]));
          vst1q_s32(to + 4, vzip2q_s32(scale[j], scale[j]));
        }
      }
      if constexpr (kFormat.minimums) {
        for (int i = 0; i < P::kSubs / 8; ++i) {
          int8x16_t m[2];
          for (int j = 0; j < 2; ++j) {
            const uint8x16_t v = vld1q_u8(block + Layout::kMins + h * 4 * P::kSubs + 32 * i + 16 * j);
            m[j] = vreinterpretq_s8_u8(kFormat.joined_scales ? vshrq_n_u8(v, 4) : v);
          }
          auto* to = static_cast<int8_t*>(static_cast<void*>(panel + P::kMins)) + i * 64 + h * 32;
          vst1q_s8(to, rows_01(m[0], m[1]));
          vst1q_s8(to + 16, rows_23(m[0], m[1]));
        }
      }
    }
  }
  unpack_levels<kFormat>(block + Layout::kTiles, panel);
}

// [row pair][token pair]
template <int kPairs>
struct TileSums {
  float32x4_t main[4][kPairs];
  float32x4_t minimum[4][kPairs];
};

inline float32x4_t load_f32(const void* p, int64_t vector) {
  return vld1q_f32(static_cast<const float*>(p) + 4 * vector);
}

// c = 8 rows x 2 * kPairs tokens x 8 * kSteps columns.
template <int kPairs, int kSteps>
inline void multiply_steps(const uint8_t* levels, const int8_t* x, int32x4_t (&c)[4][kPairs]) {
  const auto* w = static_cast<const int8_t*>(static_cast<const void*>(levels));
  for (auto& row : c) {
    for (int32x4_t& sum : row) sum = zero_s32();
  }
  for (int s = 0; s < kSteps; ++s) {
    int8x16_t token[kPairs];
    for (int j = 0; j < kPairs; ++j) token[j] = vld1q_s8(x + 16 * j + kPairStep * s);
    for (int i = 0; i < 4; ++i) {
      const int8x16_t row = vld1q_s8(w + 64 * s + 16 * i);
      for (int j = 0; j < kPairs; ++j) c[i][j] = vmmlaq_s32(c[i][j], row, token[j]);
    }
  }
}

// x: the first pair.
template <InterleavedFormat kFormat, int kPairs>
inline void tile_32(const uint8_t* panel, const int8_t* x, int64_t blocks, TileSums<kPairs>& sums) {
  using P = Panel<kFormat>;
  if constexpr (kPairs == kTilePairs && !kFormat.minimums) {
    static_assert(P::kBytes == 320 && kPairBlock32 == 240);
    return multiply_blocks_32(panel, x, blocks, &sums.main[0][0]);
  }
  TileSums<kPairs> s = {};
  const int8_t* q_sums = x + blocks * kPairBlock32;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * P::kBytes;
    const int8_t* q = x + b * kPairBlock32;
    int32x4_t c[4][kPairs];
    multiply_steps<kPairs, 4>(w, q, c);
    float32x4_t dx[kPairs];
    for (int j = 0; j < kPairs; ++j) dx[j] = load_f32(q + 16 * j + kPairD32, 0);
    for (int i = 0; i < 4; ++i) {
      const float32x4_t d = load_f32(w + P::kD, i);
      for (int j = 0; j < kPairs; ++j) {
        s.main[i][j] = vfmaq_f32(s.main[i][j], vcvtq_f32_s32(c[i][j]), vmulq_f32(d, dx[j]));
      }
    }
    if constexpr (kFormat.minimums) {
      for (int i = 0; i < 4; ++i) {
        const float32x4_t m = load_f32(w + P::kM, i);
        for (int j = 0; j < kPairs; ++j) {
          const float32x4_t q_sum = load_f32(q_sums + 16 * j + kPairStep * b, 0);
          s.minimum[i][j] = vfmaq_f32(s.minimum[i][j], q_sum, vmulq_f32(m, dx[j]));
        }
      }
    }
  }
  sums = s;
}

// One super-block: the integer sums over its sub-blocks, scaled.
template <InterleavedFormat kFormat, int kPairs>
inline void scaled_sums(const uint8_t* w, const int8_t* q, int32x4_t (&isum)[4][kPairs]) {
  constexpr int kSteps = kFormat.sub / 8;
  const auto* scales = static_cast<const int32_t*>(static_cast<const void*>(w + Panel<kFormat>::kScales));
  int32x4_t s[4][kPairs] = {};
  for (int sub = 0; sub < Panel<kFormat>::kSubs; ++sub) {
    int32x4_t c[4][kPairs];
    multiply_steps<kPairs, kSteps>(w + 64 * kSteps * sub, q + kPairStep * kSteps * sub, c);
    for (int i = 0; i < 4; ++i) {
      const int32x4_t scale = vld1q_s32(scales + 16 * sub + 4 * i);
      for (int j = 0; j < kPairs; ++j) s[i][j] = vmlaq_s32(s[i][j], c[i][j], scale);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < kPairs; ++j) isum[i][j] = s[i][j];
  }
}

template <InterleavedFormat kFormat, int kPairs>
inline void tile_256(const uint8_t* panel, const int8_t* x, int64_t blocks, TileSums<kPairs>& sums) {
  using P = Panel<kFormat>;
  sums = {};
  if constexpr (kPairs == kTilePairs && kFormat.sub == 32 && kFormat.minimums) {
    return multiply_blocks_256_by_32(panel, x, blocks, &sums.main[0][0], &sums.minimum[0][0]);
  }
  if constexpr (kPairs == kTilePairs && kFormat.sub == 16 && !kFormat.minimums) {
    return multiply_blocks_256_by_16(panel, x, blocks, &sums.main[0][0]);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * P::kBytes;
    const int8_t* q = x + b * kPairBlock256;
    int32x4_t isum[4][kPairs];
    scaled_sums<kFormat, kPairs>(w, q, isum);
    float32x4_t dx[kPairs];
    for (int j = 0; j < kPairs; ++j) dx[j] = load_f32(q + 16 * j + kPairD256, 0);
    for (int i = 0; i < 4; ++i) {
      const float32x4_t d = load_f32(w + P::kD, i);
      for (int j = 0; j < kPairs; ++j) {
        sums.main[i][j] = vfmaq_f32(sums.main[i][j], vcvtq_f32_s32(isum[i][j]), vmulq_f32(d, dx[j]));
      }
    }
    if constexpr (kFormat.minimums) {
      const auto* mins = static_cast<const int8_t*>(static_cast<const void*>(w + P::kMins));
      const int8_t* q_sums = q + (kFormat.sub == 32 ? kPairSums32 : kPairSums16);
      for (int i = 0; i < 4; ++i) {
        const float32x4_t m = load_f32(w + P::kM, i);
        for (int j = 0; j < kPairs; ++j) {
          const auto row = [&](int part) { return vld1q_s8(mins + 64 * part + 16 * i); };
          const auto q_sum = [&](int part, int low) {
            return vld1q_s8(q_sums + 16 * j + kPairStep * (2 * part + low));
          };
          int32x4_t msum = zero_s32();
          for (int part = 0; part < P::kSubs / 8; ++part) msum = vmmlaq_s32(msum, row(part), q_sum(part, 0));
          msum = vshlq_n_s32(msum, 6);
          for (int part = 0; part < P::kSubs / 8; ++part) msum = vmmlaq_s32(msum, row(part), q_sum(part, 1));
          sums.minimum[i][j] = vfmaq_f32(sums.minimum[i][j], vcvtq_f32_s32(msum), vmulq_f32(m, dx[j]));
        }
      }
    }
  }
}

// 8 rows x 2 * kPairs tokens from 2 x 2 results; a token past the end is dropped.
template <InterleavedFormat kFormat, int kPairs>
inline void put_tile(const LinearTask& task, int64_t token, int64_t row, TileSums<kPairs>& sums) {
  for (int j = 0; j < kPairs; ++j) {
    float32x4_t out[4];
    for (int i = 0; i < 4; ++i) {
      out[i] = sums.main[i][j];
      if constexpr (kFormat.minimums) {
        out[i] = kFormat.block == 32 ? vaddq_f32(out[i], sums.minimum[i][j]) : vsubq_f32(out[i], sums.minimum[i][j]);
      }
    }
    const int64_t t = token + 2 * j;
    put_rows(task, t, row, vuzp1q_f32(out[0], out[1]), vuzp1q_f32(out[2], out[3]));
    if (t + 1 == task.tokens) continue;
    put_rows(task, t + 1, row, vuzp2q_f32(out[0], out[1]), vuzp2q_f32(out[2], out[3]));
  }
}

// One panel times kPairs pairs from `pair` on.
template <InterleavedFormat kFormat, int kPairs>
inline void run_tile(const LinearTask& task, const uint8_t* panel, int64_t pair, int64_t row) {
  const int8_t* x = static_cast<const int8_t*>(task.activations) + pair_offset<kFormat.block>(pair, task.k);
  TileSums<kPairs> sums;
  if constexpr (kFormat.block == 32) {
    tile_32<kFormat, kPairs>(panel, x, task.k / 32, sums);
  } else {
    tile_256<kFormat, kPairs>(panel, x, task.k / 256, sums);
  }
  put_tile<kFormat, kPairs>(task, 2 * pair, row, sums);
}

// Panels in one go. Blocks of 32: a token tile stays in the first-level cache while the panels, in the second-level
// cache, stream past it. Blocks of 256 multiply faster than that cache delivers, so their panels stay in the first.
template <InterleavedFormat kFormat>
inline constexpr int64_t kPanelBytes = (kFormat.block == 32 ? 400 : 40) << 10;

template <InterleavedFormat kFormat>
inline int64_t gemm_scratch(int64_t k, int64_t tokens) {
  if (tokens <= kFewTokens) return 0;
  const int64_t panel = k / kFormat.block * Panel<kFormat>::kBytes;
  return panel > kPanelBytes<kFormat> ? panel : kPanelBytes<kFormat>;
}

template <InterleavedFormat kFormat>
inline void run_gemm(const LinearTask& task) noexcept {
  if (task.tokens < kGemmTokens) return run_gemv<kFormat>(task);
  if (task.tokens <= kFewTokens) return run_few<kFormat>(task);
  using Layout = InterleavedBlock<kFormat>;
  const int64_t blocks = task.k / kFormat.block;
  const int64_t panel_bytes = blocks * Panel<kFormat>::kBytes;
  const int64_t panels = kPanelBytes<kFormat> < panel_bytes ? 1 : kPanelBytes<kFormat> / panel_bytes;
  const int64_t pairs = token_pairs(task.tokens);
  const int64_t groups_end = (task.row_end + kInterleavedRows - 1) / kInterleavedRows;
  auto* scratch = static_cast<uint8_t*>(task.scratch);
  for (int64_t g = task.row_begin / kInterleavedRows; g < groups_end; g += panels) {
    const int64_t count = groups_end - g < panels ? groups_end - g : panels;
    const auto* weight = static_cast<const uint8_t*>(task.weight) + g * blocks * Layout::kBytes;
    for (int64_t b = 0; b < count * blocks; ++b) {
      unpack_block<kFormat>(weight + b * Layout::kBytes, scratch + b * Panel<kFormat>::kBytes);
    }
    for (int64_t pair = 0; pair < pairs; pair += kTilePairs) {
      for (int64_t p = 0; p < count; ++p) {
        const uint8_t* panel = scratch + p * panel_bytes;
        const int64_t row = (g + p) * kInterleavedRows;
        if (pairs - pair >= kTilePairs) {
          run_tile<kFormat, kTilePairs>(task, panel, pair, row);
        } else if (pairs - pair == 2) {
          run_tile<kFormat, 2>(task, panel, pair, row);
        } else {
          run_tile<kFormat, 1>(task, panel, pair, row);
        }
      }
    }
  }
}

template <InterleavedFormat kFormat>
inline void set_gemm(KernelTable& table, const char* name, KernelDType dtype) {
  table.linear[static_cast<int>(dtype)] = {name,
                                           &interleaved_layout(dtype),
                                           &kTokenPairs<kFormat.block>,
                                           kInterleavedRows,
                                           gemm_scratch<kFormat>,
                                           run_gemm<kFormat>};
}

inline void fill_quantized_gemm(KernelTable& table, const char* name) {
  set_gemm<kFormatQ8_0>(table, name, KernelDType::q8_0);
  set_gemm<kFormatQ4_0>(table, name, KernelDType::q4_0);
  set_gemm<kFormatQ4_1>(table, name, KernelDType::q4_1);
  set_gemm<kFormatQ5_0>(table, name, KernelDType::q5_0);
  set_gemm<kFormatQ5_1>(table, name, KernelDType::q5_1);
  set_gemm<kFormatQ2_K>(table, name, KernelDType::q2_k);
  set_gemm<kFormatQ3_K>(table, name, KernelDType::q3_k);
  set_gemm<kFormatQ4_K>(table, name, KernelDType::q4_k);
  set_gemm<kFormatQ5_K>(table, name, KernelDType::q5_k);
  set_gemm<kFormatQ6_K>(table, name, KernelDType::q6_k);
}

}  // namespace
}  // namespace inferno
