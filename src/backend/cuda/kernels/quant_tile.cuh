// A tile of quantized rows times the activations of up to eight tokens on tensor cores, in 8 bits (compute capability
// 9.0).
//
// A tile has 16 rows; its product with one group of 32 columns is an exact integer product with a column per token,
// which is then scaled like the product of one token. The planes of weight_layout.h are already in the order of the
// operands: lane l, with g = l / 4 and c = l % 4, multiplies values 4c .. 4c + 3 of both halves of a group, of rows g
// and g + 8.
#pragma once

#include "backend/cuda/kernels/formats.cuh"
#include "backend/cuda/kernels/mma.cuh"

namespace inferno::cuda {

inline constexpr int kTileColumns = 8;
// Bytes between rows in shared memory, beyond the row: eight rows are then in different banks.
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

// Two adjacent groups of all tokens.
struct TileTokens {
  uint32_t b[4];
  float d[2][2];        // [group][column 2c or 2c + 1]
  uint32_t sums[2][2];  // likewise

  // Of XQuant arrays. `operand`: of the tokens' values, this lane's row for load_matrices; `token`: columns 2c and
  // 2c + 1; kSums: the weights' type needs them.
  template <bool kSums>
  __device__ __forceinline__ void load(uint32_t operand, const uint32_t (&token)[2], int groups, int first) {
    load_matrices(b, operand + first * 16);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint2 scales = load_shared_8(token[e] + groups * 32 + first * 4);
      d[0][e] = __uint_as_float(scales.x);
      d[1][e] = __uint_as_float(scales.y);
      const uint2 both = kSums ? load_shared_8(token[e] + groups * 36 + first * 4) : make_uint2(0, 0);
      sums[0][e] = both.x;
      sums[1][e] = both.y;
    }
  }
};

template <DType F>
struct QuantTile {
  static constexpr GroupBytes kBytes = group_bytes(F);
  static constexpr int kOffset = level_offset(F);
  // The halves of a group have different scales.
  static constexpr bool kHalves = F == DType::q2_k || F == DType::q3_k || F == DType::q6_k;
  static constexpr bool kMinimum = kBytes.d == 4 || kBytes.s == 4;
  static constexpr bool kSums = kOffset != 0 || kMinimum;  // of the tokens are needed

  int lane;

  // Levels of rows g and g + 8 (i = 0, 1) of a group, both halves, and what they are scaled with.
  struct Group {
    uint32_t a[4];
    typename Part<F>::Scales scales[2];
  };

  // The planes of the tile's rows in shared memory.
  struct Rows {
    uint32_t q, h[2], s[2], d[2];  // q: this lane's row for load_matrices; the others of rows g and g + 8
  };

  // Two adjacent groups, from `first`, which is even, on; `groups`: from values 0..15 to 16..31 of a group of 8 bits.
  __device__ __forceinline__ void load(const Rows& rows, int groups, int first, Group (&group)[2]) const {
    const auto q_at = [&](int group) { return rows.q + group * 16; };
    uint32_t q[2][4];
    if constexpr (kBytes.q == 32) {
      load_matrices(q[0], q_at(lane / 16 * groups + first));
      load_matrices(q[1], q_at(lane / 16 * groups + first + 1));
    } else if constexpr (kBytes.q == 16) {
      uint32_t both[4];
      load_matrices(both, q_at(lane / 16 + first));
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

  __device__ __forceinline__ void add(const Group (&group)[2], const TileTokens& x, float* acc) const {
    add(group[0], x.b[0], x.b[1], x.d[0], x.sums[0], acc);
    add(group[1], x.b[2], x.b[3], x.d[1], x.sums[1], acc);
  }
};

#endif

}  // namespace inferno::cuda
