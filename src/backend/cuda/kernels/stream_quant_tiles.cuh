// Quantized rows times the activations of up to eight tokens on tensor cores, in 8 bits (compute capability 9.0).
//
// A tile has 16 rows, or 8 pairs with the gates in the upper half; its product with one group of 32 columns is an exact
// integer product with a column per token, which is then scaled like the product of one token. The planes of
// weight_layout.h are already in the order of the operands: lane l, with g = l / 4 and c = l % 4, multiplies values
// 4c .. 4c + 3 of both halves of a group, of rows g and g + 8. A warp has every eighth pair of groups of all rows.
#pragma once

#include "backend/cuda/kernels/vector_stream.cuh"

namespace inferno::cuda {

inline constexpr int kTileColumns = 8;
// Bytes between rows of a chunk in shared memory, beyond the row: eight rows are then in different banks.
inline constexpr int kRowPad = 16;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// c (16 x 8, s32) += a (16 x 32, s8) * b (32 x 8, s8); lanes as for mma(), with four values where that has two.
__device__ __forceinline__ void mma_s8(int* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same of 16 columns.
__device__ __forceinline__ void mma_s8(int* c, uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// A lane's sums of the tile whose first row is `first` of a chunk of `count` rows, which are from `begin` on among
// those that are finished together: sums[warp][row (SwiGLU: gates and ups in turn)][column].
template <int kColumns, DType F, bool kSwiglu>
__device__ __forceinline__ void store_tile_sums(const StreamShare<F, kSwiglu>& w, int warp, int lane, int begin,
                                                int first, int count, const float* acc) {
  float* sums = w.sums + warp * w.a.sum_stride + lane % 4 * 2;
  const auto put = [&](int index, int i) {
    *reinterpret_cast<float2*>(sums + index * kColumns) = make_float2(acc[i], acc[i + 1]);
  };
  const int row = first + lane / 4;
  if (row < count) put((begin + row) * (kSwiglu ? 2 : 1), 0);
  if constexpr (kSwiglu) {
    if (row < count) put((begin + row) * 2 + 1, 2);
  } else {
    if (row + 8 < count) put(begin + row + 8, 2);
  }
}

template <DType F, bool kSwiglu, int kColumns>
struct QuantTiles {
  static_assert(kColumns == kTileColumns);
  static constexpr int kParts = kSwiglu ? 2 : 1;
  static constexpr int kTileRows = kSwiglu ? 8 : 16;
  static constexpr GroupBytes kBytes = group_bytes(F);
  static constexpr int kOffset = level_offset(F);
  // The halves of a group have different scales.
  static constexpr bool kHalves = F == DType::q2_k || F == DType::q3_k || F == DType::q6_k;
  static constexpr bool kMinimum = kBytes.d == 4 || kBytes.s == 4;

  int lane, warp;
  uint32_t operand;   // of the tokens' values: this lane's row for load_matrices
  uint32_t token[2];  // columns 2c and 2c + 1
  int padded_groups;

  __device__ __forceinline__ QuantTiles(const StreamShare<F, kSwiglu>& w, int warp_, int lane_)
      : lane(lane_), warp(warp_), padded_groups(w.a.units * 32) {
    const int last = w.a.p.tokens - 1;  // columns without a token repeat the last one: their sums are discarded
    const uint32_t x = shared_address(w.x);
    operand = x + min(lane % 8, last) * w.a.column_bytes + (lane / 8 % 2 * padded_groups + lane / 16) * 16;
    for (int e = 0; e < 2; ++e) token[e] = x + min(lane % 4 * 2 + e, last) * w.a.column_bytes;
  }

  // Levels of rows g and g + 8 (i = 0, 1) of a group, both halves, and what they are scaled with.
  struct Group {
    uint32_t a[4];
    typename Part<F>::Scales scales[2];
  };

  // The planes of a row in shared memory; `part`: which of gate and up.
  struct Rows {
    uint32_t q, h[2], s[2], d[2];  // q: this lane's row for load_matrices; the others of rows g and g + 8
  };

  // Two adjacent groups, from `first`, which is even, on.
  __device__ __forceinline__ void load(const Rows& rows, int groups, int first, Group (&group)[2]) const {
    uint32_t q[2][4];
    if constexpr (kBytes.q == 32) {
      load_matrices(q[0], rows.q + (lane / 16 * groups + first) * 16);
      load_matrices(q[1], rows.q + (lane / 16 * groups + first + 1) * 16);
    } else if constexpr (kBytes.q == 16) {
      uint32_t both[4];
      load_matrices(both, rows.q + (lane / 16 + first) * 16);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          q[n][i] = both[2 * n + i] & 0x0f0f0f0fU;
          q[n][2 + i] = (both[2 * n + i] >> 4) & 0x0f0f0f0fU;
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) q[n / 4][n % 4] = 0;
    }
    const int c = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kBytes.h == 4) {
        const uint2 h = load_shared_8(rows.h[i] + first * 4);
        q[0][i] |= ((h.x >> c) & 0x01010101U) << 4;
        q[0][2 + i] |= ((h.x >> (4 + c)) & 0x01010101U) << 4;
        q[1][i] |= ((h.y >> c) & 0x01010101U) << 4;
        q[1][2 + i] |= ((h.y >> (4 + c)) & 0x01010101U) << 4;
      }
      if constexpr (kBytes.h == 8) {
        constexpr int kShift = kBytes.q == 16 ? 4 : 0;
        const uint4 h = load_shared_16(rows.h[i] + first * 8);
        q[0][i] |= ((h.x >> (2 * c)) & 0x03030303U) << kShift;
        q[0][2 + i] |= ((h.y >> (2 * c)) & 0x03030303U) << kShift;
        q[1][i] |= ((h.z >> (2 * c)) & 0x03030303U) << kShift;
        q[1][2 + i] |= ((h.w >> (2 * c)) & 0x03030303U) << kShift;
      }
      Part<F> part[2];
      if constexpr (kBytes.s == 2) {
        const uint32_t both = load_shared_4(rows.s[i] + first * 2);
        part[0].scale = both & 0xffffU;
        part[1].scale = both >> 16;
      } else {
        const uint2 both = load_shared_8(rows.s[i] + first * 4);
        part[0].scale = both.x;
        part[1].scale = both.y;
      }
      if constexpr (kBytes.d == 2) part[0].super = part[1].super = load_shared_2(rows.d[i] + first / 8 * 2);
      if constexpr (kBytes.d == 4) part[0].super = part[1].super = load_shared_4(rows.d[i] + first / 8 * 4);
      group[0].scales[i] = part[0].scales();
      group[1].scales[i] = part[1].scales();
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) group[n / 4].a[n % 4] = q[n / 4][n % 4];
  }

  // acc (rows g and g + 8, columns 2c and 2c + 1) plus a group's product.
  __device__ __forceinline__ void add(const Group& group, uint32_t b0, uint32_t b1, const float* d,
                                      const uint32_t* sums, float* acc) const {
    int low[4] = {};
    int high[4] = {};
    if constexpr (kHalves) {
      mma_s8(low, group.a[0], group.a[1], b0);
      mma_s8(high, group.a[2], group.a[3], b1);
    } else {
      mma_s8(low, group.a, b0, b1);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const auto& w = group.scales[n / 2];
      const int sum_a = static_cast<int16_t>(sums[n % 2] & 0xffffU);
      const int sum_b = static_cast<int16_t>(sums[n % 2] >> 16);
      const int isum = kHalves ? w.sa * (low[n] - kOffset * sum_a) + w.sb * (high[n] - kOffset * sum_b)
                               : w.sa * (low[n] - kOffset * (sum_a + sum_b));
      acc[n] = fmaf(static_cast<float>(isum), w.d * d[n % 2], acc[n]);
      if constexpr (kMinimum) {
        acc[n] = fmaf(-static_cast<float>(w.ma * sum_a + w.mb * sum_b), w.m * d[n % 2], acc[n]);
      }
    }
  }

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int begin, int count) const {
    const int g = lane / 4;
    const int groups = w.bytes.s / kBytes.s;
    const int rows = w.a.chunk_rows;
    const uint32_t part_space = chunk_space(w.bytes, rows, kRowPad);
    const uint32_t h_plane = slot + round_16((w.bytes.q + kRowPad) * rows);
    const uint32_t s_plane = h_plane + round_16(w.bytes.h * rows);
    const uint32_t d_plane = s_plane + round_16(w.bytes.s * rows);
#pragma unroll 1
    for (int first = 0; first < count; first += kTileRows) {
      // Row i of the tile; rows after the last repeat it.
      const auto row_of = [&](int i) { return kSwiglu ? min(first + i % 8, count - 1) : min(first + i, count - 1); };
      const auto skip_of = [&](int i) { return kSwiglu && i >= 8 ? part_space : 0U; };
      Rows at;
      at.q = slot + skip_of(lane % 16) + row_of(lane % 16) * (w.bytes.q + kRowPad);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row_of(g + 8 * i);
        const uint32_t skip = skip_of(8 * i);
        at.h[i] = h_plane + skip + r * w.bytes.h;
        at.s[i] = s_plane + skip + r * w.bytes.s;
        at.d[i] = d_plane + skip + r * w.bytes.d;
      }
      float acc[4] = {};
#pragma unroll 1
      for (int j = 2 * warp; j < groups; j += 2 * kStreamWarps) {
        Group group[2];
        load(at, groups, j, group);
        uint32_t b[4];
        load_matrices(b, operand + j * 16);
        uint2 d[2];
        uint2 sums[2] = {};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          d[e] = load_shared_8(token[e] + padded_groups * 32 + j * 4);
          if constexpr (kOffset != 0 || kMinimum) sums[e] = load_shared_8(token[e] + padded_groups * 36 + j * 4);
        }
        const float d0[2] = {__uint_as_float(d[0].x), __uint_as_float(d[1].x)};
        const float d1[2] = {__uint_as_float(d[0].y), __uint_as_float(d[1].y)};
        const uint32_t sums0[2] = {sums[0].x, sums[1].x};
        const uint32_t sums1[2] = {sums[0].y, sums[1].y};
        add(group[0], b[0], b[1], d0, sums0, acc);
        add(group[1], b[2], b[3], d1, sums1, acc);
      }
      store_tile_sums<kColumns>(w, warp, lane, begin, first, count, acc);
    }
  }
};

#endif

}  // namespace inferno::cuda
