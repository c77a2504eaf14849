// How a weight is stored in a device's memory: planes, so that every load is aligned and adjacent threads read adjacent
// memory. GGUF's blocks of 17 to 210 bytes are not. For the host and for kernels in C++.
//
// A quantized row is cut into groups of 32 values, whose parts are in up to four planes, row-major over (row, group):
//
//   q  levels, as blocks hold them: signed ones with their offset added, codes of codebooks.
//   h  the bits of levels that q has no room for.
//   s  scales. Blocks of 32: d (f16; MXFP4: bf16) and m (f16) if there is one. Super-blocks: two bytes, the scale and
//      the minimum of the group (0: it has none), or one for each half: its scale, or with 4-bit minimums both.
//   d  super-blocks: f16 d, and f16 dmin if there is one, per 256 values.
//
// Plain types have q alone, rows `row_stride` bytes apart. The order of bits in q and h is a device's own, because its
// instructions decide which is cheap to unpack: a type LevelOrder with
//
//   kAlignment                      of each plane, in bytes
//   level_bytes(bits)               the bytes of a group in q and h
//   low(bits, v), high(bits, v)     where value v of a group is in them: its low bits in q, the others in h
//   q_byte(bits, g, groups, i)      where byte i of group g is in the row's bytes of q
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

namespace inferno::device {

inline constexpr int kGroup = 32;
inline constexpr int kRowAlignment = 16;  // of rows of plain types: the widest load

// Bytes per group in q, h and s; per super-block in d.
struct GroupBytes {
  int q = 0;
  int h = 0;
  int s = 0;
  int d = 0;
};

// Position of `bits` bits of a level; no bits: nowhere.
struct BitField {
  int byte = 0;
  int shift = 0;
  int bits = 0;
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

template <typename LevelOrder>
INFERNO_HOST_DEVICE constexpr GroupBytes group_bytes(DType dtype) {
  const WeightFormat f = format_of(dtype);
  if (f.block <= 1) return {};
  GroupBytes bytes = LevelOrder::level_bytes(f.bits);
  const int factors = f.m >= 0 ? 4 : 2;  // d, and m if there is one
  bytes.s = f.block == kGroup ? factors : 2;
  bytes.d = f.block == kGroup ? 0 : factors;
  return bytes;
}

// What is subtracted from a stored level; 0 for formats with a minimum, and for Q8_0, whose levels are signed.
INFERNO_HOST_DEVICE constexpr int level_offset(DType dtype) {
  const WeightFormat f = format_of(dtype);
  return f.is_signed && f.bits < 8 ? 1 << (f.bits - 1) : 0;
}

// ---- where the planes of a weight are

struct PlaneLayout {
  int64_t q = 0;  // byte that each plane begins at
  int64_t h = 0;
  int64_t s = 0;
  int64_t d = 0;
  int64_t bytes = 0;       // of all
  int64_t row_stride = 0;  // plain types
  int64_t groups = 0;      // per row; quantized types
};

// Of a weight [rows, cols]; cols is a multiple of the block size.
template <typename LevelOrder>
[[nodiscard]] constexpr PlaneLayout plane_layout(DType dtype, int64_t rows, int64_t cols) {
  const auto round_up = [](int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; };
  PlaneLayout layout;
  const WeightFormat f = format_of(dtype);
  if (f.block == 1) {
    layout.row_stride = round_up(cols * f.bytes, kRowAlignment);
    layout.bytes = rows * layout.row_stride;
    return layout;
  }
  const GroupBytes bytes = group_bytes<LevelOrder>(dtype);
  layout.groups = cols / kGroup;
  const int64_t groups = rows * layout.groups;
  layout.h = layout.q + round_up(groups * bytes.q, LevelOrder::kAlignment);
  layout.s = layout.h + round_up(groups * bytes.h, LevelOrder::kAlignment);
  layout.d = layout.s + round_up(groups * bytes.s, LevelOrder::kAlignment);
  layout.bytes = layout.d + round_up(groups * kGroup / f.block * bytes.d, LevelOrder::kAlignment);
  return layout;
}

// One row of a quantized weight in its planes.
template <typename Byte>
struct PlaneRow {
  Byte* q = nullptr;
  Byte* h = nullptr;
  Byte* s = nullptr;
  Byte* d = nullptr;
  int groups = 0;
};

// Row `row`, where row 0 is given.
template <typename LevelOrder, typename Byte>
INFERNO_HOST_DEVICE constexpr PlaneRow<Byte> row_of(DType dtype, const PlaneRow<Byte>& first, int64_t row) {
  const GroupBytes bytes = group_bytes<LevelOrder>(dtype);
  const int64_t groups = row * first.groups;
  return {first.q + groups * bytes.q, first.h + groups * bytes.h, first.s + groups * bytes.s,
          first.d + groups * kGroup / format_of(dtype).block * bytes.d, first.groups};
}

// ---- what a block of the file holds

// The low bits of value v of group j of a block: four of them, or eight, or two.
INFERNO_HOST_DEVICE constexpr BitField low_field(DType dtype, int j, int v) {
  switch (dtype) {
    case DType::q8_0:
      return {2 + v, 0, 8};
    case DType::q4_0:
    case DType::iq4_nl:
      return {2 + v % 16, v / 16 * 4, 4};
    case DType::q4_1:
      return {4 + v % 16, v / 16 * 4, 4};
    case DType::q5_0:
      return {6 + v % 16, v / 16 * 4, 4};
    case DType::q5_1:
      return {8 + v % 16, v / 16 * 4, 4};
    case DType::mxfp4:
      return {1 + v % 16, v / 16 * 4, 4};
    case DType::q2_k:
      return {16 + j / 4 * 32 + v, j % 4 * 2, 2};
    case DType::q3_k:
      return {32 + j / 4 * 32 + v, j % 4 * 2, 2};
    case DType::q4_k:
      return {16 + j / 2 * 32 + v, j % 2 * 4, 4};
    case DType::q5_k:
      return {48 + j / 2 * 32 + v, j % 2 * 4, 4};
    case DType::q6_k:
      return {j / 4 * 64 + j % 2 * 32 + v, j % 4 / 2 * 4, 4};
    case DType::iq4_xs:
      return {8 + j * 16 + v % 16, v / 16 * 4, 4};
    default:
      return {};
  }
}

// The bits above those.
INFERNO_HOST_DEVICE constexpr BitField high_field(DType dtype, int j, int v) {
  switch (dtype) {
    case DType::q5_0:
      return {2 + v / 8, v % 8, 1};
    case DType::q5_1:
      return {4 + v / 8, v % 8, 1};
    case DType::q3_k:
      return {v, j, 1};
    case DType::q5_k:
      return {16 + v, j, 1};
    case DType::q6_k:
      return {128 + j / 4 * 32 + v, j % 4 * 2, 2};
    default:
      return {};
  }
}

INFERNO_HOST_DEVICE constexpr int get_bits(const uint8_t* bytes, const BitField& f) {
  return f.bits == 0 ? 0 : (bytes[f.byte] >> f.shift) & ((1 << f.bits) - 1);
}
// The bits are 0 before.
INFERNO_HOST_DEVICE constexpr void put_bits(uint8_t* bytes, const BitField& f, int value) {
  if (f.bits != 0) bytes[f.byte] = static_cast<uint8_t>(bytes[f.byte] | ((value & ((1 << f.bits) - 1)) << f.shift));
}

// A level in two fields.
INFERNO_HOST_DEVICE constexpr int get_level(const uint8_t* low, const BitField& l, const uint8_t* high,
                                            const BitField& h) {
  return get_bits(low, l) | (get_bits(high, h) << l.bits);
}
INFERNO_HOST_DEVICE constexpr void put_level(uint8_t* low, const BitField& l, uint8_t* high, const BitField& h,
                                             int level) {
  put_bits(low, l, level);
  put_bits(high, h, level >> l.bits);
}

// The two scale bytes of group j (0..7) of a super-block.
INFERNO_HOST_DEVICE constexpr void get_scales(DType dtype, const uint8_t* block, int j, uint8_t* out) {
  switch (dtype) {
    case DType::q2_k:
      out[0] = block[2 * j];
      out[1] = block[2 * j + 1];
      return;
    case DType::q3_k:
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * j + half;
        const int low = get_bits(block, {96 + i % 8, i / 8 * 4, 4});
        const int high = get_bits(block, {96 + 8 + i % 4, i / 4 * 2, 2});
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
    case DType::iq4_xs: {
      const int low = get_bits(block, {4 + j / 2, j % 2 * 4, 4});
      const int high = get_bits(block, {2 + j / 4, j % 4 * 2, 2});
      out[0] = static_cast<uint8_t>((low | (high << 4)) - 32);
      out[1] = 0;
      return;
    }
    default:  // Q6_K
      out[0] = block[192 + 2 * j];
      out[1] = block[192 + 2 * j + 1];
      return;
  }
}

INFERNO_HOST_DEVICE constexpr void put_scales(DType dtype, uint8_t* block, int j, const uint8_t* in) {
  switch (dtype) {
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
    case DType::iq4_xs: {
      const int value = static_cast<uint8_t>(in[0] + 32);
      put_bits(block, {4 + j / 2, j % 2 * 4, 4}, value & 15);
      put_bits(block, {2 + j / 4, j % 4 * 2, 2}, value >> 4);
      return;
    }
    default:  // Q6_K
      block[192 + 2 * j] = in[0];
      block[192 + 2 * j + 1] = in[1];
      return;
  }
}

// d, and m if there is one.
INFERNO_HOST_DEVICE constexpr void get_factors(DType dtype, const uint8_t* block, uint8_t* out) {
  const WeightFormat f = format_of(dtype);
  if (f.d_type == ScaleType::e8m0) {  // as e8m0_scale of quant/blocks.h
    const int e = block[f.d];
    const int bits = e < 2 ? 0x20 << e : (e - 1) << 7;
    out[0] = static_cast<uint8_t>(bits & 255);
    out[1] = static_cast<uint8_t>(bits >> 8);
    return;
  }
  for (int i = 0; i < 2; ++i) out[i] = block[f.d + i];
  for (int i = 0; f.m >= 0 && i < 2; ++i) out[2 + i] = block[f.m + i];
}

INFERNO_HOST_DEVICE constexpr void put_factors(DType dtype, uint8_t* block, const uint8_t* in) {
  const WeightFormat f = format_of(dtype);
  if (f.d_type == ScaleType::e8m0) {
    const int bits = in[0] | (in[1] << 8);
    block[f.d] = static_cast<uint8_t>(bits < 0x80 ? bits / 0x40 : (bits >> 7) + 1);
    return;
  }
  for (int i = 0; i < 2; ++i) block[f.d + i] = in[i];
  for (int i = 0; f.m >= 0 && i < 2; ++i) block[f.m + i] = in[2 + i];
}

// ---- from blocks to planes and back

// Group g of a row of blocks into its planes.
template <DType F, typename LevelOrder>
INFERNO_HOST_DEVICE inline void pack_group(const uint8_t* row, int g, const PlaneRow<uint8_t>& to) {
  constexpr WeightFormat kFormat = format_of(F);
  constexpr GroupBytes kBytes = group_bytes<LevelOrder>(F);
  constexpr int kGroups = kFormat.block / kGroup;  // of a block
  const uint8_t* block = row + int64_t{g / kGroups} * kFormat.bytes;
  const int j = g % kGroups;
  uint8_t levels[kGroup];
  for (int v = 0; v < kGroup; ++v) {
    levels[v] = static_cast<uint8_t>(get_level(block, low_field(F, j, v), block, high_field(F, j, v)));
  }
  uint8_t q[32] = {};
  uint8_t h[8] = {};
  for (int v = 0; v < kGroup; ++v) {
    put_level(q, LevelOrder::low(kFormat.bits, v), h, LevelOrder::high(kFormat.bits, v), levels[v]);
  }
  for (int i = 0; i < kBytes.q; ++i) to.q[LevelOrder::q_byte(kFormat.bits, g, to.groups, i)] = q[i];
  for (int i = 0; i < kBytes.h; ++i) to.h[g * kBytes.h + i] = h[i];
  if constexpr (kGroups == 1) {
    get_factors(F, block, to.s + g * kBytes.s);
  } else {
    get_scales(F, block, j, to.s + g * kBytes.s);
    if (j == 0) get_factors(F, block, to.d + g / kGroups * kBytes.d);
  }
}

// The reverse; the block's bytes are 0 before its first group.
template <DType F, typename LevelOrder>
inline void unpack_group(const PlaneRow<const uint8_t>& from, int g, uint8_t* row) {
  constexpr WeightFormat kFormat = format_of(F);
  constexpr GroupBytes kBytes = group_bytes<LevelOrder>(F);
  constexpr int kGroups = kFormat.block / kGroup;
  uint8_t* block = row + int64_t{g / kGroups} * kFormat.bytes;
  const int j = g % kGroups;
  uint8_t q[32] = {};
  for (int i = 0; i < kBytes.q; ++i) q[i] = from.q[LevelOrder::q_byte(kFormat.bits, g, from.groups, i)];
  for (int v = 0; v < kGroup; ++v) {
    const int level =
        get_level(q, LevelOrder::low(kFormat.bits, v), from.h + g * kBytes.h, LevelOrder::high(kFormat.bits, v));
    put_level(block, low_field(F, j, v), block, high_field(F, j, v), level);
  }
  if constexpr (kGroups == 1) {
    put_factors(F, block, from.s + g * kBytes.s);
  } else {
    put_scales(F, block, j, from.s + g * kBytes.s);
    if (j == 0) put_factors(F, block, from.d + g / kGroups * kBytes.d);
  }
}

// A whole row of a quantized type, on the host.
template <typename LevelOrder>
void pack_row(DType dtype, const uint8_t* row, const PlaneRow<uint8_t>& to) {
  switch (dtype) {
#define QUANTIZED(name, Name, ...)                                                       \
  case DType::name:                                                                      \
    for (int g = 0; g < to.groups; ++g) pack_group<DType::name, LevelOrder>(row, g, to); \
    return;
#include "tensor/weight_formats.inc"
    default:
      return;
  }
}
template <typename LevelOrder>
void unpack_row(DType dtype, const PlaneRow<const uint8_t>& from, uint8_t* row) {
  for (int64_t i = 0; i < row_bytes(dtype, int64_t{from.groups} * kGroup); ++i) row[i] = 0;
  switch (dtype) {
#define QUANTIZED(name, Name, ...)                                                             \
  case DType::name:                                                                            \
    for (int g = 0; g < from.groups; ++g) unpack_group<DType::name, LevelOrder>(from, g, row); \
    return;
#include "tensor/weight_formats.inc"
    default:
      return;
  }
}

}  // namespace inferno::device
