// Quantized weights times many tokens (few: gemm_few.h) with the 8-bit matrix instructions: prefill and large batches.
// Bit-equal to quant/numerics.h.
//
// Every format is first unpacked, losslessly, into the same panels: 8 rows of int8 levels in the order of the matrix
// instruction, and scales widened and doubled so that one vector multiply scales a 2 x 2 result. A panel is unpacked
// once and multiplied by all tokens while it is cached.
//
// A 2 x 2 result is (row 0 token 0, row 0 token 1, row 1 token 0, row 1 token 1).
#pragma once

#include "backend/cpu/kernels/arm/gemm_activations.h"
#include "backend/cpu/kernels/arm/gemm_few.h"
#include "backend/cpu/kernels/arm/gemm_tiles.h"
#include "backend/cpu/kernels/arm/gemm_tiles_k.h"
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
  static constexpr int kD = kLevelBytes;  // 4 vectors: (d0 d0 d1 d1), ...
  static constexpr int kM = kD + 64;      // the same of m
  // int32, 4 vectors per sub-block: its scale less that of the next one.
  static constexpr int kScales = kM + (kFormat.minimums ? 64 : 0);
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
    tile_levels<kFormat>(tiles + tile * Layout::kTileBytes, w);
    if constexpr (Layout::kFraction != 0) {
      for (int8x16_t& v : w) v = vshrq_n_s8(v, Layout::kFraction);
    }
    auto* to = static_cast<int8_t*>(static_cast<void*>(out)) + tile / 2 * 256 + tile % 2 * 32;
    for (int s = 0; s < 4; ++s) {
      const bool paired = kFormat.row_pairs;
      vst1q_s8(to + 64 * s, paired ? w[2 * s] : rows_01(w[2 * s], w[2 * s + 1]));
      vst1q_s8(to + 64 * s + 16, paired ? w[2 * s + 1] : rows_23(w[2 * s], w[2 * s + 1]));
    }
  }
}

template <InterleavedFormat kFormat>
inline void unpack_block(const uint8_t* block, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = Panel<kFormat>;
  const EightScales d = load_d<kFormat>(block + Layout::kD);
  store_doubled(d.low, d.high, panel + P::kD);
  if constexpr (kFormat.minimums) {
    const EightScales m = load_scales(block + Layout::kM);
    store_doubled(m.low, m.high, panel + P::kM);
  }
  if constexpr (P::kScaled) {
    for (int h = 0; h < 2; ++h) {
      int32x4_t scale[P::kSubs + 1];
      for (int i = 0; i < P::kSubs; i += 4) {
        widen_scales<kFormat>(block + Layout::kScales + h * 4 * P::kSubs + 4 * i, scale + i);
      }
      scale[P::kSubs] = zero_s32();
      for (int i = 0; i < P::kSubs; ++i) {
        const int32x4_t step = vsubq_s32(scale[i], scale[i + 1]);
        auto* to = static_cast<int32_t*>(static_cast<void*>(panel + P::kScales)) + i * 16 + h * 8;
        vst1q_s32(to, vzip1q_s32(step, step));
        vst1q_s32(to + 4, vzip2q_s32(step, step));
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
struct TileSums {
  float32x4_t of[4][kTilePairs];
};

inline float32x4_t load_f32(const void* p, int64_t vector) {
  return vld1q_f32(static_cast<const float*>(p) + 4 * vector);
}

// c += 8 rows x kPairs token pairs x 8 * kSteps columns.
template <int kSteps, int kPairs>
inline void multiply_steps(const uint8_t* levels, const int8_t* x, int32x4_t (&c)[4][kPairs]) {
  const auto* w = static_cast<const int8_t*>(static_cast<const void*>(levels));
  for (int s = 0; s < kSteps; ++s) {
    int8x16_t token[kPairs];
    for (int j = 0; j < kPairs; ++j) token[j] = vld1q_s8(x + 16 * j + TileLayout::kStep * s);
    for (int i = 0; i < 4; ++i) {
      const int8x16_t row = vld1q_s8(w + 64 * s + 16 * i);
      for (int j = 0; j < kPairs; ++j) c[i][j] = vmmlaq_s32(c[i][j], row, token[j]);
    }
  }
}

// sums = a whole panel times the first kPairs pairs of a tile of tokens.
template <InterleavedFormat kFormat, int kPairs>
inline void multiply_tile_32(const uint8_t* panel, const int8_t* x, int64_t blocks, TileSums& sums) {
  using P = Panel<kFormat>;
  if constexpr (kUseAssembly && !kFormat.minimums && kPairs == kTilePairs) {
    static_assert(P::kBytes == 320 && TileLayout::kBlock32 == 240);
    return multiply_blocks_32(panel, x, blocks, &sums.of[0][0]);
  }
  float32x4_t s[4][kPairs] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * P::kBytes;
    const int8_t* q = x + b * TileLayout::kBlock32;
    int32x4_t c[4][kPairs] = {};
    multiply_steps<4>(w, q, c);
    for (int i = 0; i < 4; ++i) {
      const float32x4_t d = load_f32(w + P::kD, i);
      for (int j = 0; j < kPairs; ++j) {
        const float32x4_t dx = load_f32(q + 16 * j + TileLayout::kD32, 0);
        s[i][j] = vfmaq_f32(s[i][j], vcvtq_f32_s32(c[i][j]), vmulq_f32(d, dx));
        if constexpr (kFormat.minimums) {
          const float32x4_t q_sum = load_f32(x + blocks * TileLayout::kBlock32 + b * TileLayout::kStep + 16 * j, 0);
          s[i][j] = vfmaq_f32(s[i][j], q_sum, vmulq_f32(load_f32(w + P::kM, i), dx));
        }
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < kPairs; ++j) sums.of[i][j] = s[i][j];
  }
}

// One super-block: the integer sums over its sub-blocks, scaled. As in gemm_tiles_k.h, c is not cleared between them.
template <InterleavedFormat kFormat, int kPairs>
inline void scaled_sums(const uint8_t* w, const int8_t* q, int32x4_t (&isum)[4][kPairs]) {
  constexpr int kSteps = kFormat.sub / 8;
  const auto* scales = static_cast<const int32_t*>(static_cast<const void*>(w + Panel<kFormat>::kScales));
  int32x4_t s[4][kPairs] = {};
  int32x4_t c[4][kPairs] = {};
  for (int sub = 0; sub < Panel<kFormat>::kSubs; ++sub) {
    multiply_steps<kSteps>(w + 64 * kSteps * sub, q + TileLayout::kStep * kSteps * sub, c);
    for (int i = 0; i < 4; ++i) {
      const int32x4_t scale = vld1q_s32(scales + 16 * sub + 4 * i);
      for (int j = 0; j < kPairs; ++j) s[i][j] = vmlaq_s32(s[i][j], c[i][j], scale);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < kPairs; ++j) isum[i][j] = s[i][j];
  }
}

// The minimums of row pair i times the sums of a token pair.
template <InterleavedFormat kFormat>
inline int32x4_t minimum_sums(const uint8_t* w, const int8_t* q, int i) {
  using P = Panel<kFormat>;
  const auto* mins = static_cast<const int8_t*>(static_cast<const void*>(w + P::kMins)) + 16 * i;
  const int8_t* q_sums = q + (kFormat.sub == 32 ? TileLayout::kSums32 : TileLayout::kSums16);
  int32x4_t msum = zero_s32();
  for (int part = 0; part < P::kSubs / 8; ++part) {
    msum = vmmlaq_s32(msum, vld1q_s8(mins + 64 * part), vld1q_s8(q_sums + TileLayout::kStep * 2 * part));
  }
  msum = vshlq_n_s32(msum, 6);
  for (int part = 0; part < P::kSubs / 8; ++part) {
    msum = vmmlaq_s32(msum, vld1q_s8(mins + 64 * part), vld1q_s8(q_sums + TileLayout::kStep * (2 * part + 1)));
  }
  return msum;
}

template <InterleavedFormat kFormat, int kPairs>
inline void add_tile_256(const uint8_t* panel, const int8_t* x, int64_t blocks, TileSums& sums) {
  using P = Panel<kFormat>;
  if constexpr (kUseAssembly && kFormat.sub == 32 && kFormat.minimums && kPairs == kTilePairs) {
    return multiply_blocks_256_by_32(panel, x, blocks, &sums.of[0][0]);
  }
  if constexpr (kUseAssembly && kFormat.sub == 16 && !kFormat.minimums && kPairs == kTilePairs) {
    return multiply_blocks_256_by_16(panel, x, blocks, &sums.of[0][0]);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* w = panel + b * P::kBytes;
    const int8_t* q = x + b * TileLayout::kBlock256;
    int32x4_t isum[4][kPairs];
    scaled_sums<kFormat>(w, q, isum);
    for (int i = 0; i < 4; ++i) {
      const float32x4_t d = load_f32(w + P::kD, i);
      for (int j = 0; j < kPairs; ++j) {
        const float32x4_t dx = load_f32(q + 16 * j + TileLayout::kD256, 0);
        sums.of[i][j] = vfmaq_f32(sums.of[i][j], vcvtq_f32_s32(isum[i][j]), vmulq_f32(d, dx));
        if constexpr (kFormat.minimums) {
          const float32x4_t msum = vcvtq_f32_s32(minimum_sums<kFormat>(w, q + 16 * j, i));
          sums.of[i][j] = vfmsq_f32(sums.of[i][j], msum, vmulq_f32(load_f32(w + P::kM, i), dx));
        }
      }
    }
  }
}

// 8 rows x 6 tokens from 2 x 2 results; tokens past the end are dropped.
inline void store_tile(const LinearTask& task, int64_t token, int64_t row, const TileSums& sums) {
  for (int j = 0; j < kTilePairs; ++j) {
    const auto out = [&](int i) { return sums.of[i][j]; };
    const int64_t t = token + 2 * j;
    if (t >= task.tokens) return;
    store_rows(task, t, row, vuzp1q_f32(out(0), out(1)), vuzp1q_f32(out(2), out(3)));
    if (t + 1 == task.tokens) return;
    store_rows(task, t + 1, row, vuzp2q_f32(out(0), out(1)), vuzp2q_f32(out(2), out(3)));
  }
}

// Calls f with the number of pairs of a tile that hold some of the remaining `tokens`, as a constant.
template <typename F>
inline void with_pairs(int64_t tokens, F f) {
  static_assert(kTilePairs == 3);
  if (tokens > 4) return f(std::integral_constant<int, 3>{});
  if (tokens > 2) return f(std::integral_constant<int, 2>{});
  f(std::integral_constant<int, 1>{});
}

// A whole panel (8 rows from `row` on) times a tile (6 tokens from `token` on), to the output.
template <InterleavedFormat kFormat>
inline void store_product_32(const LinearTask& task, const uint8_t* panel, int64_t row, const int8_t* x,
                             int64_t token) {
  const int64_t blocks = task.k / 32;
  if constexpr (kUseAssembly && !kFormat.minimums) {
    if (token + 2 * kTilePairs <= task.tokens && row + kInterleavedRows <= task.row_end) {
      const TilePlace place = {task.out + token * task.out_stride + row,
                               task.out_stride * static_cast<int64_t>(sizeof(float))};
      if (task.accumulate) return multiply_blocks_32_into<true>(panel, x, blocks, place);
      return multiply_blocks_32_into<false>(panel, x, blocks, place);
    }
  }
  TileSums sums;
  with_pairs(task.tokens - token, [&](auto pairs) { multiply_tile_32<kFormat, pairs>(panel, x, blocks, sums); });
  store_tile(task, token, row, sums);
}

// The cache blocking: panels of a chunk of columns that are multiplied together.
//
// Blocks of 32: whole panels, which are streamed from L2 while a tile of tokens is in L1. The K formats multiply faster
// than L2 delivers, so some panels of a short chunk stay in L1 and the tiles are streamed; the running sums of all
// tiles are in L2.
template <InterleavedFormat kFormat>
struct Chunks {
  static constexpr bool kWhole = kFormat.block == 32;
  static constexpr int64_t kBytes = (kWhole ? 400 : 44) << 10;
  static constexpr int64_t kBlocks = 512 / kFormat.block;  // unless the panels are whole

  int64_t blocks;  // of a chunk
  int64_t panels;

  explicit Chunks(int64_t k) : blocks(kWhole ? k / kFormat.block : kBlocks) {
    panels = kBytes / panel_bytes() > 1 ? kBytes / panel_bytes() : 1;
  }
  [[nodiscard]] int64_t panel_bytes() const { return blocks * Panel<kFormat>::kBytes; }
  // The memory of all panels, monotonic in k.
  [[nodiscard]] int64_t bytes() const { return panel_bytes() > kBytes ? panel_bytes() : kBytes; }
  [[nodiscard]] int64_t sums(int64_t tokens) const {
    return kWhole ? 0 : panels * token_tiles<few_tokens(kFormat)>(tokens);
  }
};

template <InterleavedFormat kFormat>
inline int64_t gemm_scratch(int64_t k, int64_t tokens) {
  if (tokens <= few_tokens(kFormat)) return 0;
  const Chunks<kFormat> chunks(k);
  return chunks.bytes() + chunks.sums(tokens) * static_cast<int64_t>(sizeof(TileSums));
}

// Prefetches part p of `count` of the next tile into L2: it is in L3 or in another core's cache, and each tile would
// start with misses.
inline void prefetch_part(const int8_t* from, int64_t bytes, int64_t p, int64_t count) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (bytes + kLine - 1) / kLine;
  for (int64_t i = lines * p / count; i < lines * (p + 1) / count; ++i) __builtin_prefetch(from + i * kLine, 0, 2);
}

// Rows [8 * group, 8 * (group + count)) of the output.
template <InterleavedFormat kFormat>
inline void multiply_panels(const LinearTask& task, const Chunks<kFormat>& chunks, int64_t group, int64_t count) {
  using Layout = InterleavedBlock<kFormat>;
  const int64_t blocks = task.k / kFormat.block;
  constexpr int64_t kFew = few_tokens(kFormat);
  const int64_t tiles = token_tiles<kFew>(task.tokens);
  const int64_t bytes = tile_bytes<kFormat.block, kFew>(task.tokens, task.k);
  constexpr int64_t kBlockBytes = kFormat.block == 32 ? TileLayout::kBlock32 : TileLayout::kBlock256;
  auto* panels = static_cast<uint8_t*>(task.scratch);
  auto* sums = static_cast<TileSums*>(static_cast<void*>(panels + chunks.bytes()));
  for (int64_t first = 0; first < blocks; first += chunks.blocks) {
    const int64_t chunk = blocks - first < chunks.blocks ? blocks - first : chunks.blocks;
    for (int64_t p = 0; p < count; ++p) {
      const auto* weight = static_cast<const uint8_t*>(task.weight) + ((group + p) * blocks + first) * Layout::kBytes;
      uint8_t* panel = panels + p * chunks.panel_bytes();
      for (int64_t b = 0; b < chunk; ++b) {
        unpack_block<kFormat>(weight + b * Layout::kBytes, panel + b * Panel<kFormat>::kBytes);
      }
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int8_t* x = static_cast<const int8_t*>(task.activations) + tile * bytes;
      for (int64_t p = 0; p < count; ++p) {
        prefetch_part(x + bytes + first * kBlockBytes, chunk * kBlockBytes, p, count);
        const uint8_t* panel = panels + p * chunks.panel_bytes();
        const int64_t row = (group + p) * kInterleavedRows;
        if constexpr (Chunks<kFormat>::kWhole) {
          store_product_32<kFormat>(task, panel, row, x, tile * 2 * kTilePairs);
        } else {
          TileSums& s = sums[tile * chunks.panels + p];
          if (first == 0) s = {};
          with_pairs(task.tokens - tile * 2 * kTilePairs,
                     [&](auto pairs) { add_tile_256<kFormat, pairs>(panel, x + first * kBlockBytes, chunk, s); });
          if (first + chunk == blocks) store_tile(task, tile * 2 * kTilePairs, row, s);
        }
      }
    }
  }
}

template <InterleavedFormat kFormat>
inline void run_gemm(const LinearTask& task) noexcept {
  if (task.tokens < kGemmTokens) return run_rows<kFormat>(task);
  if (task.tokens <= few_tokens(kFormat)) return run_few<kFormat>(task);
  const Chunks<kFormat> chunks(task.k);
  const int64_t end = (task.row_end + kInterleavedRows - 1) / kInterleavedRows;
  for (int64_t g = task.row_begin / kInterleavedRows; g < end; g += chunks.panels) {
    multiply_panels<kFormat>(task, chunks, g, end - g < chunks.panels ? end - g : chunks.panels);
  }
}

template <InterleavedFormat kFormat>
inline void set_gemm(KernelTable& table, const char* name, DType dtype) {
  table.linear[static_cast<int>(dtype)] = {name,
                                           kFormat.row_pairs ? &row_pairs_layout() : &interleaved_layout(dtype),
                                           &kTokenPairs<kFormat.block, few_tokens(kFormat)>,
                                           kInterleavedRows,
                                           gemm_scratch<kFormat>,
                                           run_gemm<kFormat>};
}

// Levels of 8 bits are stored by pairs of rows.
consteval InterleavedFormat gemm_format(InterleavedFormat format) {
  format.row_pairs = format.bits == 8;
  return format;
}

inline void fill_quantized_gemm(KernelTable& table, const char* table_name) {
#define QUANTIZED(name, Name, ...) set_gemm<gemm_format(kFormat##Name)>(table, table_name, DType::name);
#include "tensor/weight_formats.inc"
}

}  // namespace
}  // namespace inferno
