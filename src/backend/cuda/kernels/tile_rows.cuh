// A warpgroup's rows of a weight for tile_product_kernel: copied to shared memory and unpacked, a unit at a time.
#pragma once

#include "backend/cuda/kernels/formats.cuh"
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/tile_types.h"

namespace inferno::cuda {

// Bytes of a unit's weights.
__host__ __device__ constexpr int unit_bytes(DType dtype, int rows = kGroupRows) {
  if (is_plain(dtype)) return rows * tile_unit(dtype) * 2;
  const GroupBytes b = group_bytes(dtype);
  return rows * 8 * (b.q + b.h + b.s);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// 16 bytes of a weight, as copy_async_16; they are read once in a step: L2 evicts them first.
__device__ __forceinline__ void copy_weight_16(uint32_t to, const void* from, bool exists, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0), "l"(policy)
               : "memory");
}

// kRows rows of a weight, from `first` on: 64 as one warpgroup has them, 16 of each warp, or 16 that its warps share.
template <DType F, int kRows = kGroupRows>
class TileRows {
 public:
  static constexpr int kSteps = tile_unit(F) / 16;

  __device__ __forceinline__ TileRows(const TileProduct::Segment& s, int first)
      : w_(s.w), first_(first), rows_(s.rows), thread_(static_cast<int>(threadIdx.x) % kGroupThreads) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }

  __device__ __forceinline__ void move_to(int first) { first_ = first; }

  // Enqueues copies of a unit to shared memory. Rows after the last are zero.
  __device__ __forceinline__ void copy(int unit, uint32_t to) const {
    if constexpr (is_plain(F)) {
      // Tiles of 64 values as wgmma reads them, see operand().
      copy_plane<16, 128>(w_.q, w_.row_stride, unit * tile_unit(F) * 2, [&](int r, int piece) {
        return to + piece / 8 * (kRows * 128) + r * 128 + ((piece % 8 ^ r % 8) << 4);
      });
    } else {
      constexpr GroupBytes kBytes = group_bytes(F);
      const int64_t groups = w_.groups;
      const auto q_place = [&](int r, int piece) { return to + r * (8 * kBytes.q) + ((piece ^ r % 8) << 4); };
      if constexpr (kBytes.q != 0) copy_plane<8, 8 * kBytes.q>(w_.q, groups * kBytes.q, unit * 128, q_place);
      if constexpr (kBytes.q == 32) {  // the second halves of the groups
        copy_plane<8, 8 * kBytes.q>(w_.q + groups * 16, groups * kBytes.q, unit * 128,
                                    [&](int r, int piece) { return q_place(r, piece) + 128; });
      }
      if constexpr (kBytes.h != 0) {
        copy_plane<kBytes.h / 2, 8 * kBytes.h>(w_.h, groups * kBytes.h, unit * 8 * kBytes.h,
                                               [&](int r, int piece) { return h_place(to, r, piece); });
      }
      constexpr int kScales = kRows * 8 * (kBytes.q + kBytes.h);
      copy_plane<kBytes.s / 2, 8 * kBytes.s>(w_.s, groups * kBytes.s, unit * 8 * kBytes.s, [&](int r, int piece) {
        return to + kScales + r * (8 * kBytes.s) + piece * 16;
      });
    }
  }

  // The factors of whole blocks of a unit, which are not copied; loaded ahead of unpack().
  __device__ __forceinline__ void load_super(int unit) {
    constexpr int kSize = group_bytes(F).d;
    if constexpr (kSize != 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = min(first_ + my_row() + 8 * i, rows_ - 1);
        const uint8_t* at = w_.d + (int64_t{row} * (w_.groups / 8) + unit) * kSize;
        super_[i] = kSize == 2 ? load_weight_2(at) : load_weight_4(at);
      }
    }
  }

  // Part `part` of the unit at `from`, kCount groups, as operands of wgmma: of lane l, values 2c, 2c + 1, 2c + 8,
  // 2c + 9 of each 16, c = l % 4, of rows l / 4 and that plus 8 of the warp's 16.
  template <int kCount>
  __device__ __forceinline__ void unpack(uint32_t from, int part, uint32_t (&a)[2 * kCount][4]) const {
    static_assert(kCount % 4 == 0);
    constexpr GroupBytes kBytes = group_bytes(F);
    const int c = thread_ % 4;
    const int row = my_row();
    const uint32_t q_at = (from + row * (8 * kBytes.q) + (row % 8 << 4) + 2 * c) ^ (part * kCount << 4);
    const uint32_t s_at = from + kRows * 8 * (kBytes.q + kBytes.h) + row * (8 * kBytes.s) + part * kCount * kBytes.s;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // rows
        Part<F> group;
        const uint32_t scale_at = s_at + i * 8 * (8 * kBytes.s) + j * kBytes.s;
        group.scale = kBytes.s == 4 ? load_shared_4(scale_at) : load_shared_2(scale_at);
        group.super = super_[i];
        const auto w = group.scales();
        uint32_t high = 0;
        if constexpr (kBytes.h != 0) high = load_high_bits(from, row + 8 * i, part * kCount, j);
#pragma unroll
        for (int n = 0; n < 2; ++n) {  // values 2c.., 2c + 8..
          const uint32_t at = (q_at ^ (j << 4)) + i * 8 * (8 * kBytes.q) + n * 8;
          const uint32_t levels = load_levels(at, high, n);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float s = w.d * static_cast<float>(half == 0 ? w.sa : w.sb);
            const float m = w.m * static_cast<float>(half == 0 ? w.ma : w.mb);
            a[2 * j + half][2 * n + i] =
                kBytes.q == 32 ? scaled_bytes(levels, half, s) : scaled_pair(levels, half, s, m);
          }
        }
      }
    }
  }

 private:
  // `kPieces` pieces of 16 bytes of each row, from byte `at` of the row on; kStride: bytes between rows at the
  // destination, which is place(row, piece).
  template <int kPieces, int kStride, typename Place>
  __device__ __forceinline__ void copy_plane(const uint8_t* plane, int64_t row_bytes, int at, Place place) const {
    constexpr int kStep = kGroupThreads / kPieces;  // rows at a time
    static_assert(kStep % 8 == 0, "all of a thread's rows have the same place modulo 8");
    const int row = thread_ / kPieces;
    const int piece = thread_ % kPieces;
    if (kStep > kRows && row >= kRows) return;
    const uint8_t* from = plane + (first_ + row) * row_bytes + at + piece * 16;
    const uint32_t to = place(row, piece);
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      copy_weight_16(to + i * kStride, from, first_ + row + i < rows_, policy_);
      from += kStep * row_bytes;
    }
  }
  static __device__ __forceinline__ uint32_t h_place(uint32_t unit, int row, int piece) {
    constexpr GroupBytes kBytes = group_bytes(F);
    const uint32_t plane = unit + kRows * 8 * kBytes.q;
    return kBytes.h == 8 ? plane + row * 64 + ((piece ^ row / 2 % 4) << 4) : plane + row * 32 + piece * 16;
  }
  // The lane's four levels of a group at `at`: two of the first half, two of the second. `n`: which of eight values.
  static __device__ __forceinline__ uint32_t load_levels(uint32_t at, uint32_t high, int n) {
    constexpr GroupBytes kBytes = group_bytes(F);
    const uint32_t low = load_shared_2(at);
    if constexpr (kBytes.q == 32) return __byte_perm(low, load_shared_2(at + 128), 0x5410) ^ 0x80808080U;
    const uint32_t levels = (low | low << 12) & 0x0f0f0f0fU;
    if constexpr (kBytes.h == 8) return levels | ((n == 0 ? high << 4 : high) & 0x30303030U);
    if constexpr (kBytes.h == 4) return levels | ((n == 0 ? high << 4 : high << 2) & 0x10101010U);
    return levels;
  }
  // Bits above the low four of group first + j, first a multiple of four, those of the lane's levels in the low bits of
  // their bytes, the next n above them.
  [[nodiscard]] __device__ __forceinline__ uint32_t load_high_bits(uint32_t unit, int row, int first, int j) const {
    const uint32_t odd = thread_ % 2;
    const uint32_t quad = thread_ % 4 / 2;
    if constexpr (group_bytes(F).h == 8) {
      const uint2 h = load_shared_8(h_place(unit, row, first / 2 + j / 2) + j % 2 * 8);
      return __byte_perm(h.x, h.y, odd != 0 ? 0x7632 : 0x5410) >> (2 * quad);
    } else {
      const uint32_t h = load_shared_4(h_place(unit, row, first / 4 + j / 4) + j % 4 * 4) >> quad;
      return __byte_perm(h, h >> 4, odd != 0 ? 0x7632 : 0x5410);
    }
  }
  // Two levels of 4 to 6 bits of a half, scaled, as bf16.
  static __device__ __forceinline__ uint32_t scaled_pair(uint32_t levels, int half, float s, float m) {
    constexpr float kBias = 128.0F + level_offset(F);
    if constexpr (group_bytes(F).d == 4 || group_bytes(F).s == 4) {
      return scaled_floats<0x43000000U, 0x7044U, 8>(levels, half, s, fmaf(-kBias, s, -m));
    }
    // A level in the low bits of 128 is 128 plus the level, exact in bf16, and so is the product with the scale's upper
    // bits until the rest is added: as precise as with floats, with half of the instructions.
    const uint32_t raised = __byte_perm(levels, 0x43U, half == 0 ? 0x4140 : 0x4342);
    const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&raised), __float2bfloat162_rn(kBias));
    const __nv_bfloat162 rest = __hmul2(v, __float2bfloat162_rn(s - round_bf16(s)));
    const __nv_bfloat162 result = __hfma2(v, __float2bfloat162_rn(s), rest);
    return *reinterpret_cast<const uint32_t*>(&result);
  }
  // The same of 8 bits, whose sign is flipped.
  static __device__ __forceinline__ uint32_t scaled_bytes(uint32_t levels, int half, float s) {
    constexpr float kBias = 32768.0F + 128.0F;
    return scaled_floats<0x47000000U, 0x7404U, 4>(levels, half, s, -kBias * s);
  }
  // A level in the right bits of a float, kBase, is that plus the level. kSelector puts level 0 there, and 1 more in
  // its bits from kShift on the next.
  template <uint32_t kBase, uint32_t kSelector, int kShift>
  static __device__ __forceinline__ uint32_t scaled_floats(uint32_t levels, int half, float s, float constant) {
    float v[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t selector = kSelector + (static_cast<uint32_t>(2 * half + e) << kShift);
      v[e] = fmaf(__uint_as_float(__byte_perm(levels, kBase, selector)), s, constant);
    }
    return pack_pair<__nv_bfloat16>(v[0], v[1]);
  }
  // The first of the thread's two rows.
  [[nodiscard]] __device__ __forceinline__ int my_row() const {
    return thread_ / kWarp * 16 % kRows + thread_ % kWarp / 4;
  }

  const Planes& w_;
  int first_;
  int rows_;
  int thread_;
  uint64_t policy_;
  uint32_t super_[2] = {};
};

#endif

}  // namespace inferno::cuda
