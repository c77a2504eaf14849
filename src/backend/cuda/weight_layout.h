// How a quantized weight is stored in device memory, for the GPU's loads and for the host's tests.
//
// Every format is cut into groups of 32 values along a row, and the parts of a group go into up to four planes, each
// row-major over (row, group), so that the 32 lanes of a warp read 32 adjacent groups with loads of 16 bytes:
//
//   q  levels, or codes. 4-bit parts: 16 bytes, byte v % 16 holds value v in half v / 16. Q8_0: two runs per row, first
//      the first 16 bytes of every group, then the second 16.
//   h  bits above the low four. 1 bit: byte v % 4, bit v / 4. 2 bits: word v / 16, byte v % 4, bits 2 * (v % 16 / 4)...
//      A shift and a mask give the bits of four consecutive values in the bytes of a dp4a operand.
//   s  scales of the group: f16 d (and f16 m), or MXFP4's byte and a zero; K formats and IQ4_XS: two bytes, (scale,
//      minimum) or the scales of both halves.
//   d  K formats and IQ4_XS: f16 d (and f16 dmin) per 256 values.
//
// The conversion is lossless both ways.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

#ifdef __CUDACC__
#define INFERNO_HOST_DEVICE __host__ __device__
#else
#define INFERNO_HOST_DEVICE
#endif

namespace inferno::cuda {

inline constexpr int kGroup = 32;

// Bytes per group in q, h and s; per block of 256 in d.
struct GroupBytes {
  int q = 0;
  int h = 0;
  int s = 0;
  int d = 0;
};

// The registry's row of a type. A switch, because device code cannot index a table of the host.
INFERNO_HOST_DEVICE constexpr WeightFormat format_of(DType dtype) {
  switch (dtype) {
#define FORMAT(name, Name, ...) \
  case DType::name:             \
    return {__VA_ARGS__};
#include "tensor/weight_formats.inc"
    default:
      return {.gguf_id = -1, .file_type = 0, .bytes = 0, .bits = 0};
  }
}

// Whether this backend has kernels for weights of the type.
INFERNO_HOST_DEVICE constexpr bool has_kernels(DType dtype) {
  return dtype != DType::i32;
}
// Whether levels are looked up by codes.
INFERNO_HOST_DEVICE constexpr bool has_codebook(DType dtype) {
  return format_of(dtype).codebook != Codebook::none;
}
// Whether a scale is one byte, a power of two.
INFERNO_HOST_DEVICE constexpr bool has_byte_scale(DType dtype) {
  return format_of(dtype).d_type == ScaleType::e8m0;
}

INFERNO_HOST_DEVICE constexpr GroupBytes group_bytes(DType dtype) {
  const WeightFormat f = format_of(dtype);
  if (f.block == 1 || !has_kernels(dtype)) return {};
  const int halves = f.m >= 0 ? 4 : 2;  // d, and m if there is one
  GroupBytes bytes = {16, 0, 2, 0};
  if (f.bits == 8) bytes.q = 32;
  if (f.bits == 2) bytes.q = 0;
  if (f.bits == 5) bytes.h = 4;
  if (f.bits == 2 || f.bits == 6) bytes.h = 8;
  (f.block == 32 ? bytes.s : bytes.d) = halves;
  return bytes;
}

// What is subtracted from a stored level; 0 for formats with a minimum and for Q8_0, whose levels are signed.
INFERNO_HOST_DEVICE constexpr int level_offset(DType dtype) {
  const WeightFormat f = format_of(dtype);
  return f.is_signed && f.bits < 8 ? 1 << (f.bits - 1) : 0;
}

// The planes of one weight; for plain types q alone, rows `row_stride` bytes apart.
struct Planes {
  uint8_t* q = nullptr;
  uint8_t* h = nullptr;
  uint8_t* s = nullptr;
  uint8_t* d = nullptr;
  int64_t row_stride = 0;  // bytes, plain types only; a multiple of 16
  int groups = 0;          // per row, quantized types only
};

// Position of `bits` bits of a level in a canonical block.
struct BitField {
  int byte = 0;
  int shift = 0;
  int bits = 0;
};

// The low four bits (Q8_0: all eight) of level i of a block.
INFERNO_HOST_DEVICE constexpr BitField low_field(DType dtype, int i) {
  switch (dtype) {
    case DType::q8_0:
      return {2 + i, 0, 8};
    case DType::q4_0:
      return {2 + i % 16, i / 16 * 4, 4};
    case DType::q4_1:
      return {4 + i % 16, i / 16 * 4, 4};
    case DType::q5_0:
      return {6 + i % 16, i / 16 * 4, 4};
    case DType::q5_1:
      return {8 + i % 16, i / 16 * 4, 4};
    case DType::iq4_nl:
      return {2 + i % 16, i / 16 * 4, 4};
    case DType::mxfp4:
      return {1 + i % 16, i / 16 * 4, 4};
    case DType::iq4_xs:
      return {8 + i / 32 * 16 + i % 16, i % 32 / 16 * 4, 4};
    case DType::q3_k:
      return {32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2};
    case DType::q4_k:
      return {16 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4};
    case DType::q5_k:
      return {48 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4};
    case DType::q6_k:
      return {i / 128 * 64 + i % 64, i % 128 / 64 * 4, 4};
    default:
      return {};
  }
}

// The bits above those.
INFERNO_HOST_DEVICE constexpr BitField high_field(DType dtype, int i) {
  switch (dtype) {
    case DType::q5_0:
      return {2 + i / 8, i % 8, 1};
    case DType::q5_1:
      return {4 + i / 8, i % 8, 1};
    case DType::q2_k:
      return {16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2};
    case DType::q3_k:
      return {i % 32, i / 32, 1};
    case DType::q5_k:
      return {16 + i % 32, i / 32, 1};
    case DType::q6_k:
      return {128 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2};
    default:
      return {};
  }
}

INFERNO_HOST_DEVICE inline int get_bits(const uint8_t* bytes, const BitField& f) {
  return f.bits == 0 ? 0 : (bytes[f.byte] >> f.shift) & ((1 << f.bits) - 1);
}
INFERNO_HOST_DEVICE inline void put_bits(uint8_t* bytes, const BitField& f, int value) {
  if (f.bits != 0) bytes[f.byte] = static_cast<uint8_t>(bytes[f.byte] | ((value & ((1 << f.bits) - 1)) << f.shift));
}

// Position of the high bits of value v inside a group's h bytes. Q3_K keeps its third bit in the q plane's nibble.
INFERNO_HOST_DEVICE constexpr BitField plane_high_field(DType dtype, int v) {
  switch (group_bytes(dtype).h) {
    case 4:
      return {v % 4, v / 4, 1};
    case 8:
      return {v / 16 * 4 + v % 4, v % 16 / 4 * 2, 2};
    default:
      return {};
  }
}

// Row's groups in a plane.
INFERNO_HOST_DEVICE inline uint8_t* q_row(const Planes& p, DType dtype, int64_t row) {
  return p.q + row * p.groups * group_bytes(dtype).q;
}
INFERNO_HOST_DEVICE inline uint8_t* h_row(const Planes& p, DType dtype, int64_t row) {
  return p.h + row * p.groups * group_bytes(dtype).h;
}
INFERNO_HOST_DEVICE inline uint8_t* s_row(const Planes& p, DType dtype, int64_t row) {
  return p.s + row * p.groups * group_bytes(dtype).s;
}
INFERNO_HOST_DEVICE inline uint8_t* d_row(const Planes& p, DType dtype, int64_t row) {
  return p.d + row * (p.groups / 8) * group_bytes(dtype).d;
}

// The two scale bytes of group j (0..7) of a block of 256.
INFERNO_HOST_DEVICE inline void get_k_scales(DType dtype, const uint8_t* block, int j, uint8_t* out) {
  switch (dtype) {
    case DType::iq4_xs: {
      const int low = (block[4 + j / 2] >> (j % 2 * 4)) & 15;
      const int high = (block[2 + j / 4] >> (j % 4 * 2)) & 3;
      out[0] = out[1] = static_cast<uint8_t>((low | (high << 4)) - 32);
      return;
    }
    case DType::q2_k:
      out[0] = block[2 * j];
      out[1] = block[2 * j + 1];
      return;
    case DType::q3_k:
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * j + half;
        const int low = (block[96 + i % 8] >> (i / 8 * 4)) & 15;
        const int high = (block[96 + 8 + i % 4] >> (i / 4 * 2)) & 3;
        out[half] = static_cast<uint8_t>((low | (high << 4)) - 32);
      }
      return;
    case DType::q4_k:
    case DType::q5_k: {
      const uint8_t* packed = block + 4;
      if (j < 4) {
        out[0] = packed[j] & 63;
        out[1] = packed[j + 4] & 63;
      } else {
        out[0] = static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4));
        out[1] = static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6 << 4));
      }
      return;
    }
    default:  // Q6_K
      out[0] = block[192 + 2 * j];
      out[1] = block[192 + 2 * j + 1];
      return;
  }
}

INFERNO_HOST_DEVICE inline void put_k_scales(DType dtype, uint8_t* block, int j, const uint8_t* in) {
  switch (dtype) {
    case DType::iq4_xs: {
      const int value = static_cast<uint8_t>(in[0] + 32);
      put_bits(block, {4 + j / 2, j % 2 * 4, 4}, value & 15);
      put_bits(block, {2 + j / 4, j % 4 * 2, 2}, value >> 4);
      return;
    }
    case DType::q2_k:
      block[2 * j] = in[0];
      block[2 * j + 1] = in[1];
      return;
    case DType::q3_k:
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * j + half;
        const int value = static_cast<uint8_t>(in[half] + 32);
        put_bits(block, {96 + i % 8, i / 8 * 4, 4}, value & 15);
        put_bits(block, {96 + 8 + i % 4, i / 4 * 2, 2}, value >> 4);
      }
      return;
    case DType::q4_k:
    case DType::q5_k: {
      uint8_t* packed = block + 4;
      if (j < 4) {
        put_bits(packed, {j, 0, 6}, in[0]);
        put_bits(packed, {j + 4, 0, 6}, in[1]);
      } else {
        put_bits(packed, {j + 4, 0, 4}, in[0] & 15);
        put_bits(packed, {j - 4, 6, 2}, in[0] >> 4);
        put_bits(packed, {j + 4, 4, 4}, in[1] & 15);
        put_bits(packed, {j, 6, 2}, in[1] >> 4);
      }
      return;
    }
    default:  // Q6_K
      block[192 + 2 * j] = in[0];
      block[192 + 2 * j + 1] = in[1];
      return;
  }
}

// Group g of one canonical row into its planes; q, h, s and d point at the row (see q_row and the others).
INFERNO_HOST_DEVICE inline void pack_group(DType dtype, const uint8_t* row, int g, uint8_t* q, uint8_t* h, uint8_t* s,
                                           uint8_t* d, int groups) {
  const WeightFormat format = format_of(dtype);
  const GroupBytes bytes = group_bytes(dtype);
  const uint8_t* block = row + int64_t{g} * kGroup / format.block * format.bytes;
  const int first = g * kGroup % format.block;
  for (int i = 0; i < bytes.h; ++i) h[g * bytes.h + i] = 0;
  for (int v = 0; v < kGroup; ++v) {
    int low = get_bits(block, low_field(dtype, first + v));
    const int high = get_bits(block, high_field(dtype, first + v));
    if (dtype == DType::q8_0) {
      q[(v / 16 * groups + g) * 16 + v % 16] = static_cast<uint8_t>(low);
      continue;
    }
    if (dtype == DType::q3_k) low |= high << 2;
    if (bytes.q != 0) {
      uint8_t& byte = q[g * 16 + v % 16];
      byte = static_cast<uint8_t>(v < 16 ? low : byte | (low << 4));
    }
    put_bits(h + g * bytes.h, plane_high_field(dtype, v), high);
  }
  uint8_t* scale = bytes.d == 0 ? s + g * bytes.s : d + g / 8 * bytes.d;
  if (bytes.d == 0 || g % 8 == 0) {
    scale[0] = block[format.d];
    scale[1] = has_byte_scale(dtype) ? uint8_t{0} : block[format.d + 1];
    if (format.m >= 0) {
      scale[2] = block[format.m];
      scale[3] = block[format.m + 1];
    }
  }
  if (bytes.d != 0) get_k_scales(dtype, block, first / kGroup, s + g * bytes.s);
}

// The reverse, for one whole row.
inline void unpack_canonical_row(DType dtype, const uint8_t* q, const uint8_t* h, const uint8_t* s, const uint8_t* d,
                                 int groups, uint8_t* row) {
  const WeightFormat format = format_of(dtype);
  const GroupBytes bytes = group_bytes(dtype);
  for (int64_t i = 0; i < int64_t{groups} * kGroup / format.block * format.bytes; ++i) row[i] = 0;
  for (int g = 0; g < groups; ++g) {
    uint8_t* block = row + int64_t{g} * kGroup / format.block * format.bytes;
    const int first = g * kGroup % format.block;
    for (int v = 0; v < kGroup; ++v) {
      int low = 0;
      if (dtype == DType::q8_0) {
        low = q[(v / 16 * groups + g) * 16 + v % 16];
      } else if (bytes.q != 0) {
        low = (q[g * 16 + v % 16] >> (v / 16 * 4)) & 15;
      }
      const int high = dtype == DType::q3_k ? low >> 2 : get_bits(h + g * bytes.h, plane_high_field(dtype, v));
      put_bits(block, low_field(dtype, first + v), low);
      put_bits(block, high_field(dtype, first + v), high);
    }
    const uint8_t* scale = bytes.d == 0 ? s + g * bytes.s : d + g / 8 * bytes.d;
    block[format.d] = scale[0];
    if (!has_byte_scale(dtype)) block[format.d + 1] = scale[1];
    if (format.m >= 0) {
      block[format.m] = scale[2];
      block[format.m + 1] = scale[3];
    }
    if (bytes.d != 0) put_k_scales(dtype, block, first / kGroup, s + g * bytes.s);
  }
}

}  // namespace inferno::cuda
