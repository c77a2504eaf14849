// Weight formats on the device: loading a lane's part of a row, multiplying it, giving back its values.
//
// A unit is 1,024 values of a row, handled by one warp. Quantized formats: lane l has group l of the unit (32 values).
// Plain formats: lane l has pieces of 16 bytes at l, l + 32, ... of the unit. Loads and arithmetic are separate, so
// that a kernel can prefetch the next unit.
#pragma once

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/weight_layout.h"

namespace inferno::cuda {

inline constexpr int kUnit = 1024;

// Activations of one token in shared memory, as the formats read them.
enum class Activation : uint8_t {
  f32,       // K floats
  split8,    // 16-bit weights: of each 8 floats, the first four in one array, the others in a second
  halves,    // 16-bit weights on tensor cores: see stream_activations.cuh
  quant32,   // 8-bit per 32: see XGroup
  quant256,  // 8-bit per 256, the scale repeated for each group of 32
};

template <DType F>
__host__ __device__ constexpr Activation activation_of() {
  if constexpr (F == DType::f32) return Activation::f32;
  if constexpr (F == DType::f16 || F == DType::bf16) return Activation::split8;
  return format_of(F).block == 32 ? Activation::quant32 : Activation::quant256;
}
__host__ __device__ constexpr bool is_quant(Activation a) {
  return a == Activation::quant32 || a == Activation::quant256;
}
// Bytes of one token's activations for `units` units.
__host__ __device__ constexpr int activation_bytes(Activation a, int units) {
  return is_quant(a) ? units * 32 * 40 : units * kUnit * 4;
}

// The quantized activations of group g: values 0..15 in `a`, 16..31 in `b`, the scale, the sums of both halves.
struct XGroup {
  uint4 a, b;
  float d;
  int sum_a, sum_b;
};
// One token's arrays: a [groups][16], b [groups][16], d [groups], sums (short, short) [groups].
struct XQuant {
  uint8_t* base;
  int groups;  // padded to whole units

  __device__ __forceinline__ uint8_t* a() const { return base; }
  __device__ __forceinline__ uint8_t* b() const { return base + groups * 16; }
  __device__ __forceinline__ float* d() const { return reinterpret_cast<float*>(base + groups * 32); }
  __device__ __forceinline__ uint32_t* sums() const { return reinterpret_cast<uint32_t*>(base + groups * 36); }
  __device__ __forceinline__ XGroup group(int g) const {
    XGroup x;
    x.a = reinterpret_cast<const uint4*>(a())[g];
    x.b = reinterpret_cast<const uint4*>(b())[g];
    x.d = d()[g];
    const uint32_t pair = sums()[g];
    x.sum_a = static_cast<int16_t>(pair & 0xffffU);
    x.sum_b = static_cast<int16_t>(pair >> 16);
    return x;
  }
};

__device__ __forceinline__ int dot16(const uint4& w, const uint4& x) {
  int sum = __dp4a(static_cast<int>(w.x), static_cast<int>(x.x), 0);
  sum = __dp4a(static_cast<int>(w.y), static_cast<int>(x.y), sum);
  sum = __dp4a(static_cast<int>(w.z), static_cast<int>(x.z), sum);
  return __dp4a(static_cast<int>(w.w), static_cast<int>(x.w), sum);
}
// The same of unsigned bytes w.
__device__ __forceinline__ int dot16_unsigned(const uint4& w, const uint4& x) {
  const auto add = [](uint32_t four, uint32_t values, int sum) {
    int result;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(four), "r"(values), "r"(sum));
    return result;
  };
  return add(w.w, x.w, add(w.z, x.z, add(w.y, x.y, add(w.x, x.x, 0))));
}

// The planes of one row: in device memory, or as a copy in shared memory.
struct GlobalRow {
  const uint8_t* q;
  const uint8_t* h;
  const uint8_t* s;
  const uint8_t* d;

  __device__ __forceinline__ uint4 q16(int at) const { return load_weight_16(q + at); }
  __device__ __forceinline__ uint32_t h4(int at) const { return load_weight_4(h + at); }
  __device__ __forceinline__ uint2 h8(int at) const { return load_weight_8(h + at); }
  __device__ __forceinline__ uint32_t s2(int at) const { return load_weight_2(s + at); }
  __device__ __forceinline__ uint32_t s4(int at) const { return load_weight_4(s + at); }
  __device__ __forceinline__ uint32_t d2(int at) const { return load_weight_2(d + at); }
  __device__ __forceinline__ uint32_t d4(int at) const { return load_weight_4(d + at); }
};
struct SharedRow {
  uint32_t q, h, s, d;  // shared-memory addresses

  __device__ __forceinline__ uint4 q16(int at) const { return load_shared_16(q + at); }
  __device__ __forceinline__ uint32_t h4(int at) const { return load_shared_4(h + at); }
  __device__ __forceinline__ uint2 h8(int at) const { return load_shared_8(h + at); }
  __device__ __forceinline__ uint32_t s2(int at) const { return load_shared_2(s + at); }
  __device__ __forceinline__ uint32_t s4(int at) const { return load_shared_4(s + at); }
  __device__ __forceinline__ uint32_t d2(int at) const { return load_shared_2(d + at); }
  __device__ __forceinline__ uint32_t d4(int at) const { return load_shared_4(d + at); }
};

// Bytes of one row in each plane.
struct RowBytes {
  int q = 0;
  int h = 0;
  int s = 0;
  int d = 0;
};
template <DType F>
__host__ __device__ __forceinline__ RowBytes row_bytes_of(const Planes& p) {
  constexpr GroupBytes kBytes = group_bytes(F);
  if (kBytes.s == 0) return {static_cast<int>(p.row_stride), 0, 0, 0};
  return {p.groups * kBytes.q, p.groups * kBytes.h, p.groups * kBytes.s, p.groups / 8 * kBytes.d};
}
template <DType F>
__device__ __forceinline__ GlobalRow global_row(const Planes& p, int64_t row) {
  const RowBytes bytes = row_bytes_of<F>(p);
  return {p.q + row * bytes.q, p.h + row * bytes.h, p.s + row * bytes.s, p.d + row * bytes.d};
}

// Four entries of a codebook as the bytes of a word.
constexpr uint32_t codebook_word(Codebook codebook, int first) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<uint8_t>(kCodebooks[static_cast<int>(codebook)][first + i])) << (8 * i);
  }
  return word;
}
template <Codebook kCodebook, int kFirst>
inline constexpr uint32_t kCodebookWord = codebook_word(kCodebook, kFirst);
// The entries of four codes, 0 to 15 in each byte.
template <Codebook kCodebook>
__device__ __forceinline__ uint32_t look_up(uint32_t codes) {
  // The low three bits of each code choose among eight bytes, the fourth between the halves of the table.
  const uint32_t packed = (codes & 0x7U) | ((codes >> 4) & 0x70U) | ((codes >> 8) & 0x700U) | ((codes >> 12) & 0x7000U);
  const uint32_t upper = ((codes >> 3) & 0x01010101U) * 0xffU;
  const uint32_t low = __byte_perm(kCodebookWord<kCodebook, 0>, kCodebookWord<kCodebook, 4>, packed);
  const uint32_t high = __byte_perm(kCodebookWord<kCodebook, 8>, kCodebookWord<kCodebook, 12>, packed);
  return (low & ~upper) | (high & upper);
}

// A lane's part of a unit: quantized formats.
template <DType F>
struct Part {
  using X = XGroup;
  static constexpr GroupBytes kBytes = group_bytes(F);
  static constexpr int kOffset = level_offset(F);
  // Levels are half of a byte and nothing else: the upper halves are multiplied where they are, as 16 times the level,
  // and the whole sum is shifted.
  static constexpr bool kHalfBytes = kBytes.q == 16 && kBytes.h == 0 && !has_codebook(F);
  uint4 q0, q1;    // q1: Q8_0 only
  uint2 h;         // h.y: two-bit parts only
  uint32_t scale;  // s plane
  uint32_t super;  // d plane

  // `unit`: index of the unit in the row. Lanes beyond the row get zeros.
  template <typename Row>
  __device__ __forceinline__ void load(const Row& row, const RowBytes& bytes, int unit, int lane) {
    const int groups = bytes.s / kBytes.s;
    const int g = unit * 32 + lane;
    q0 = q1 = make_uint4(0, 0, 0, 0);
    h = make_uint2(0, 0);
    scale = super = 0;
    if (g >= groups) return;
    if constexpr (kBytes.q != 0) q0 = row.q16(g * 16);
    if constexpr (kBytes.q == 32) q1 = row.q16((groups + g) * 16);
    if constexpr (kBytes.h == 4) h.x = row.h4(g * 4);
    if constexpr (kBytes.h == 8) h = row.h8(g * 8);
    scale = kBytes.s == 2 ? row.s2(g * 2) : row.s4(g * 4);
    if constexpr (kBytes.d == 2) super = row.d2(g / 8 * 2);
    if constexpr (kBytes.d == 4) super = row.d4(g / 8 * 4);
  }

  // The levels as bytes, values 0..15 in `a` and 16..31 in `b`; the offset is not subtracted. Those of a codebook are
  // looked up.
  __device__ __forceinline__ void levels(uint4& a, uint4& b) const {
    if constexpr (F == DType::q8_0) {
      a = q0;
      b = q1;
      return;
    }
    uint32_t low[4] = {};
    uint32_t high[4] = {};
    const uint32_t words[4] = {q0.x, q0.y, q0.z, q0.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kBytes.q == 16) {
        low[j] = words[j] & 0x0f0f0f0fU;
        high[j] = (words[j] >> 4) & 0x0f0f0f0fU;
      }
      if constexpr (kBytes.h == 4) {
        low[j] |= ((h.x >> j) & 0x01010101U) << 4;
        high[j] |= ((h.x >> (4 + j)) & 0x01010101U) << 4;
      }
      if constexpr (kBytes.h == 8) {
        constexpr int kShift = kBytes.q == 16 ? 4 : 0;
        low[j] |= ((h.x >> (2 * j)) & 0x03030303U) << kShift;
        high[j] |= ((h.y >> (2 * j)) & 0x03030303U) << kShift;
      }
      if constexpr (has_codebook(F)) {
        low[j] = look_up<format_of(F).codebook>(low[j]);
        high[j] = look_up<format_of(F).codebook>(high[j]);
      }
    }
    a = make_uint4(low[0], low[1], low[2], low[3]);
    b = make_uint4(high[0], high[1], high[2], high[3]);
  }

  // Scales of both halves and the factor of the minimum: value = d * scale_half * level - or + minimum.
  struct Scales {
    float d, m;          // f16 parts
    int sa, sb, ma, mb;  // integer parts of both halves
  };
  __device__ __forceinline__ Scales scales() const {
    Scales r{};
    r.sa = r.sb = 1;
    if constexpr (has_byte_scale(F)) {
      r.d = bf16_low(scale & 0xffffU);
    } else if constexpr (kBytes.d == 0) {
      r.d = half_bits(scale & 0xffffU);
      if constexpr (kBytes.s == 4) {
        r.m = half_bits(scale >> 16);
        r.ma = r.mb = -1;  // value = d * level + m
      }
    } else {
      r.d = half_bits(super & 0xffffU);
      if constexpr (kBytes.d == 4) r.m = half_bits(super >> 16);
      if constexpr (F == DType::q2_k) {
        r.sa = static_cast<int>(scale & 15U), r.ma = static_cast<int>((scale >> 4) & 15U);
        r.sb = static_cast<int>((scale >> 8) & 15U), r.mb = static_cast<int>((scale >> 12) & 15U);
      } else if constexpr (F == DType::q4_k || F == DType::q5_k) {
        r.sa = r.sb = static_cast<int>(scale & 0xffU);
        r.ma = r.mb = static_cast<int>(scale >> 8);
      } else if constexpr (F == DType::iq4_xs) {
        r.sa = r.sb = static_cast<int8_t>(scale & 0xffU);
      } else {
        r.sa = static_cast<int8_t>(scale & 0xffU);
        r.sb = static_cast<int8_t>(scale >> 8);
      }
    }
    return r;
  }

  // A lane's share of a token's activations in shared memory.
  static __device__ __forceinline__ X activations(const uint8_t* x, int groups, int unit, int lane) {
    return XQuant{const_cast<uint8_t*>(x), groups}.group(unit * 32 + lane);
  }
  // The group as its products need it.
  struct Unpacked {
    uint4 a, b;  // levels; kHalfBytes: b is 16 times them
    Scales w;
  };
  __device__ __forceinline__ Unpacked unpack() const {
    Unpacked u;
    levels(u.a, u.b);
    if constexpr (kHalfBytes) {
      constexpr uint32_t kUpper = 0xf0f0f0f0U;
      u.b = make_uint4(q0.x & kUpper, q0.y & kUpper, q0.z & kUpper, q0.w & kUpper);
    }
    u.w = scales();
    return u;
  }
  // acc plus the group times a token's group.
  __device__ __forceinline__ float multiply(const X& g, float acc) const { return multiply(unpack(), g, acc); }
  static __device__ __forceinline__ float multiply(const Unpacked& u, const X& g, float acc) {
    const Scales& w = u.w;
    const int dot_a = dot16(u.a, g.a) - kOffset * g.sum_a;
    const int dot_b = (kHalfBytes ? dot16_unsigned(u.b, g.b) >> 4 : dot16(u.b, g.b)) - kOffset * g.sum_b;
    const int isum = w.sa * dot_a + w.sb * dot_b;
    acc = fmaf(static_cast<float>(isum), w.d * g.d, acc);
    if constexpr (kBytes.d == 4 || kBytes.s == 4) {
      const int msum = w.ma * g.sum_a + w.mb * g.sum_b;
      acc = fmaf(-static_cast<float>(msum), w.m * g.d, acc);
    }
    return acc;
  }

  // The group's values, out[32].
  __device__ __forceinline__ void values(float* out) const {
    uint4 a, b;
    levels(a, b);
    const Scales w = scales();
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int v = 0; v < kGroup; ++v) {
      const uint32_t byte = (words[v / 4] >> (v % 4 * 8)) & 0xffU;
      constexpr bool kSigned = F == DType::q8_0 || has_codebook(F);
      const int level = kSigned ? static_cast<int8_t>(byte) : static_cast<int>(byte) - kOffset;
      const float s = w.d * static_cast<float>(v < 16 ? w.sa : w.sb);
      const float m = w.m * static_cast<float>(v < 16 ? w.ma : w.mb);
      out[v] = __fsub_rn(__fmul_rn(s, static_cast<float>(level)), m);
    }
  }
};

// 16-bit weights: four pieces of eight values.
template <DType F>
struct HalfPart {
  struct X {
    float4 low[4], high[4];  // of each eight values
  };
  uint4 w[4];

  template <typename Row>
  __device__ __forceinline__ void load(const Row& row, const RowBytes& bytes, int unit, int lane) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = (unit * 128 + j * 32 + lane) * 16;
      w[j] = at < bytes.q ? row.q16(at) : make_uint4(0, 0, 0, 0);
    }
  }
  static __device__ __forceinline__ X activations(const uint8_t* x, int groups, int unit, int lane) {
    const auto* planes = reinterpret_cast<const float4*>(x);
    X v;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v.low[j] = planes[unit * 128 + j * 32 + lane];
      v.high[j] = planes[groups * 4 + unit * 128 + j * 32 + lane];
    }
    return v;
  }
  __device__ __forceinline__ float multiply(const X& x, float acc) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t words[4] = {w[j].x, w[j].y, w[j].z, w[j].w};
      float v[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (F == DType::bf16) {
          v[2 * i] = bf16_low(words[i]);
          v[2 * i + 1] = bf16_high(words[i]);
        } else {
          v[2 * i] = half_bits(words[i] & 0xffffU);
          v[2 * i + 1] = half_bits(words[i] >> 16);
        }
      }
      // Two short chains rather than one long one.
      const float4 lo = x.low[j];
      const float4 hi = x.high[j];
      const float low = fmaf(v[3], lo.w, fmaf(v[2], lo.z, fmaf(v[1], lo.y, v[0] * lo.x)));
      const float high = fmaf(v[7], hi.w, fmaf(v[6], hi.z, fmaf(v[5], hi.y, v[4] * hi.x)));
      acc += low + high;
    }
    return acc;
  }
};
template <>
struct Part<DType::f16> : HalfPart<DType::f16> {};
template <>
struct Part<DType::bf16> : HalfPart<DType::bf16> {};

template <>
struct Part<DType::f32> {
  struct X {
    float4 v[8];
  };
  uint4 w[8];

  template <typename Row>
  __device__ __forceinline__ void load(const Row& row, const RowBytes& bytes, int unit, int lane) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int at = (unit * 256 + j * 32 + lane) * 16;
      w[j] = at < bytes.q ? row.q16(at) : make_uint4(0, 0, 0, 0);
    }
  }
  static __device__ __forceinline__ X activations(const uint8_t* x, int /*groups*/, int unit, int lane) {
    X v;
#pragma unroll
    for (int j = 0; j < 8; ++j) v.v[j] = reinterpret_cast<const float4*>(x)[unit * 256 + j * 32 + lane];
    return v;
  }
  __device__ __forceinline__ float multiply(const X& x, float acc) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 v = x.v[j];
      float sum = __uint_as_float(w[j].x) * v.x;
      sum = fmaf(__uint_as_float(w[j].y), v.y, sum);
      sum = fmaf(__uint_as_float(w[j].z), v.z, sum);
      acc += fmaf(__uint_as_float(w[j].w), v.w, sum);
    }
    return acc;
  }
};

// Calls visit.template operator()<F>() with the weight type as a template argument.
template <typename Visit>
void with_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
#define FORMAT(name, Name, ...)                                                       \
  case DType::name:                                                                   \
    if constexpr (has_kernels(DType::name)) visit.template operator()<DType::name>(); \
    break;
#include "tensor/weight_formats.inc"
    default:
      break;
  }
}

}  // namespace inferno::cuda
