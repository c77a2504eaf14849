#include "backend/metal/weight_planes.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "quant/block_parts.h"

namespace inferno::metal {
namespace {

constexpr int kGroup = 32;

struct GroupBytes {
  int q = 0;
  int h = 0;
  int s = 0;
  int d = 0;  // per super-block
};

GroupBytes group_bytes(const WeightFormat& f) {
  const int halves = f.m >= 0 ? 4 : 2;  // d, and m if there is one
  GroupBytes bytes{.q = f.bits == 8 ? 32 : f.bits == 2 ? 8 : 16};
  if (f.bits == 5) bytes.h = 4;
  if (f.bits == 6) bytes.h = 8;
  bytes.s = f.block == kGroup ? halves : 2;
  if (f.block > kGroup) bytes.d = halves;
  return bytes;
}

int level_offset(const WeightFormat& f) {
  return f.is_signed && f.bits < 8 ? 1 << (f.bits - 1) : 0;
}

void or_into(uint8_t& byte, int bits) {
  byte = static_cast<uint8_t>(byte | bits);
}

void put_code(const WeightFormat& f, int code, int v, uint8_t* q, uint8_t* h) {
  if (f.bits == 8) {
    q[v] = static_cast<uint8_t>(code);
  } else if (f.bits == 2) {
    or_into(q[v / 4], code << (v % 4 * 2));
  } else {
    or_into(q[v % 16], (code & 15) << (v / 16 * 4));
  }
  if (f.bits == 5) or_into(h[v / 8], code >> 4 << (v % 8));
  if (f.bits == 6) or_into(h[v / 4], code >> 4 << (v % 4 * 2));
}

int get_code(const WeightFormat& f, int v, const uint8_t* q, const uint8_t* h) {
  if (f.bits == 8) return q[v];
  if (f.bits == 2) return (q[v / 4] >> (v % 4 * 2)) & 3;
  int code = (q[v % 16] >> (v / 16 * 4)) & 15;
  if (f.bits == 5) code |= ((h[v / 8] >> (v % 8)) & 1) << 4;
  if (f.bits == 6) code |= ((h[v / 4] >> (v % 4 * 2)) & 3) << 4;
  return code;
}

// The two bytes of scales of group j of a super-block.
void put_scales(const WeightFormat& f, const BlockParts& parts, int j, uint8_t* out) {
  if (f.sub == kGroup) {
    out[0] = parts.scales[j];
    out[1] = f.m >= 0 ? parts.minimums[j] : uint8_t{0};
    return;
  }
  for (int half = 0; half < 2; ++half) {
    const int sub = 2 * j + half;
    out[half] = parts.scales[sub];
    if (f.joined_scales) or_into(out[half], parts.minimums[sub] << 4);
  }
}

void get_scales(const WeightFormat& f, const uint8_t* in, int j, BlockParts& parts) {
  if (f.sub == kGroup) {
    parts.scales[j] = in[0];
    parts.minimums[j] = in[1];
    return;
  }
  for (int half = 0; half < 2; ++half) {
    const int sub = 2 * j + half;
    parts.scales[sub] = static_cast<uint8_t>(f.joined_scales ? in[half] & 15 : in[half]);
    parts.minimums[sub] = static_cast<uint8_t>(f.joined_scales ? in[half] >> 4 : 0);
  }
}

// d, and m if there is one.
void put_factors(const WeightFormat& f, const BlockParts& parts, uint8_t* out) {
  if (f.d_type == ScaleType::e8m0) {
    const bf16 d = e8m0_scale(static_cast<uint8_t>(parts.d));
    std::memcpy(out, &d, 2);
    return;
  }
  std::memcpy(out, &parts.d, 2);
  if (f.m >= 0) std::memcpy(out + 2, &parts.m, 2);
}

void get_factors(const WeightFormat& f, const uint8_t* in, BlockParts& parts) {
  std::memcpy(&parts.d, in, 2);
  if (f.m >= 0) std::memcpy(&parts.m, in + 2, 2);
  if (f.d_type != ScaleType::e8m0) return;
  int e = 0;
  while (std::memcmp(in, std::array{e8m0_scale(static_cast<uint8_t>(e))}.data(), 2) != 0) ++e;
  parts.d = static_cast<f16>(e);
}

// Where the parts of a group are.
template <typename Byte>
struct GroupPlanes {
  Byte* q;
  Byte* h;
  Byte* s;
  Byte* factors;  // d, and m if there is one
};
template <typename Byte>
GroupPlanes<Byte> group_at(const WeightFormat& f, const PlaneArgs& planes, int64_t row, int64_t g, Byte* memory) {
  const GroupBytes bytes = group_bytes(f);
  const int64_t at = row * planes.groups + g;
  Byte* s = memory + planes.s + at * bytes.s;
  return {memory + planes.q + at * bytes.q, memory + planes.h + at * bytes.h, s,
          f.block == kGroup ? s : memory + planes.d + at * kGroup / f.block * bytes.d};
}

template <typename Block>
void pack_blocks(const WeightFormat& f, const PlaneArgs& planes, int64_t row, const std::byte* source,
                 uint8_t* memory) {
  const int groups_per_block = f.block / kGroup;
  for (int64_t g = 0; g < planes.groups; g += groups_per_block) {
    Block block;
    std::memcpy(&block, source + g / groups_per_block * f.bytes, sizeof block);
    BlockParts parts;
    split_block(block, &parts);
    for (int j = 0; j < groups_per_block; ++j) {
      const GroupPlanes<uint8_t> to = group_at(f, planes, row, g + j, memory);
      for (int v = 0; v < kGroup; ++v) put_code(f, parts.levels[j * kGroup + v] + level_offset(f), v, to.q, to.h);
      put_factors(f, parts, to.factors);
      if (f.block > kGroup) put_scales(f, parts, j, to.s);
    }
  }
}

template <typename Block>
void unpack_blocks(const WeightFormat& f, const PlaneArgs& planes, int64_t row, const uint8_t* memory, std::byte* out) {
  const int groups_per_block = f.block / kGroup;
  for (int64_t g = 0; g < planes.groups; g += groups_per_block) {
    BlockParts parts = {};
    for (int j = 0; j < groups_per_block; ++j) {
      const GroupPlanes<const uint8_t> from = group_at(f, planes, row, g + j, memory);
      for (int v = 0; v < kGroup; ++v) {
        parts.levels[j * kGroup + v] = static_cast<int8_t>(get_code(f, v, from.q, from.h) - level_offset(f));
      }
      get_factors(f, from.factors, parts);
      if (f.block > kGroup) get_scales(f, from.s, j, parts);
    }
    Block block;
    join_block(parts, &block);
    std::memcpy(out + g / groups_per_block * f.bytes, &block, sizeof block);
  }
}

}  // namespace

PlaneLayout plane_layout(DType dtype, int64_t rows, int64_t cols) {
  const WeightFormat& f = weight_format(dtype);
  INFERNO_CHECK(cols % f.block == 0);
  PlaneLayout layout;
  layout.args.rows = static_cast<args_uint>(rows);
  layout.args.cols = static_cast<args_uint>(cols);
  const auto add = [&](int64_t bytes) {
    const uint64_t begin = layout.bytes;
    layout.bytes += (static_cast<uint64_t>(bytes) + 15) / 16 * 16;
    return begin;
  };
  if (f.block == 1) {
    layout.args.row_stride = static_cast<args_uint>((cols * f.bytes + 15) / 16 * 16);
    layout.args.q = add(rows * layout.args.row_stride);
    return layout;
  }
  const GroupBytes bytes = group_bytes(f);
  const int64_t groups = cols / kGroup;
  layout.args.groups = static_cast<args_uint>(groups);
  layout.args.q = add(rows * groups * bytes.q);
  layout.args.h = add(rows * groups * bytes.h);
  layout.args.s = add(rows * groups * bytes.s);
  layout.args.d = add(rows * cols / f.block * bytes.d);
  return layout;
}

void pack_row(DType dtype, const PlaneLayout& layout, int64_t row, const std::byte* source,
              std::span<std::byte> planes) {
  INFERNO_CHECK(planes.size() == layout.bytes && row < layout.args.rows);
  const WeightFormat& f = weight_format(dtype);
  auto* memory = reinterpret_cast<uint8_t*>(planes.data());
  if (f.block == 1) {
    std::memcpy(memory + layout.args.q + row * layout.args.row_stride, source,
                static_cast<size_t>(layout.args.cols) * static_cast<size_t>(f.bytes));
    return;
  }
  switch (dtype) {
#define QUANTIZED(name, Name, ...) \
  case DType::name:                \
    return pack_blocks<Block##Name>(f, layout.args, row, source, memory);
#include "tensor/weight_formats.inc"
    default:
      break;
  }
}

void unpack_row(DType dtype, const PlaneLayout& layout, int64_t row, std::span<const std::byte> planes,
                std::byte* out) {
  INFERNO_CHECK(planes.size() == layout.bytes && row < layout.args.rows);
  const WeightFormat& f = weight_format(dtype);
  const auto* memory = reinterpret_cast<const uint8_t*>(planes.data());
  if (f.block == 1) {
    std::memcpy(out, memory + layout.args.q + row * layout.args.row_stride,
                static_cast<size_t>(layout.args.cols) * static_cast<size_t>(f.bytes));
    return;
  }
  switch (dtype) {
#define QUANTIZED(name, Name, ...) \
  case DType::name:                \
    return unpack_blocks<Block##Name>(f, layout.args, row, memory, out);
#include "tensor/weight_formats.inc"
    default:
      break;
  }
}

}  // namespace inferno::metal
