#include "backend/metal/weight_planes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/blocks.h"

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

uint8_t code_of(const WeightFormat& f, int8_t level) {
  if (f.codebook == Codebook::none) return static_cast<uint8_t>(level + level_offset(f));
  const auto& values = kCodebooks[static_cast<size_t>(f.codebook)];
  return static_cast<uint8_t>(std::find(std::begin(values), std::end(values), level) - std::begin(values));
}

// The two bytes of scales of group j of a super-block. Blocks of 32 have none.
template <typename Block>
void k_scales(const Block& /*block*/, int /*j*/, uint8_t* /*out*/) {}
void k_scales(const BlockQ2_K& block, int j, uint8_t* out) {
  std::memcpy(out, block.scales + 2 * j, 2);
}
void k_scales(const BlockQ3_K& block, int j, uint8_t* out) {
  int8_t scales[16];
  unpack_scales(block, scales);
  std::memcpy(out, scales + 2 * j, 2);
}
template <typename Block>
void scale_and_minimum(const Block& block, int j, uint8_t* out) {
  uint8_t scales[8];
  uint8_t minimums[8];
  unpack_scales(block, scales, minimums);
  out[0] = scales[j];
  out[1] = minimums[j];
}
void k_scales(const BlockQ4_K& block, int j, uint8_t* out) {
  scale_and_minimum(block, j, out);
}
void k_scales(const BlockQ5_K& block, int j, uint8_t* out) {
  scale_and_minimum(block, j, out);
}
void k_scales(const BlockQ6_K& block, int j, uint8_t* out) {
  std::memcpy(out, block.scales + 2 * j, 2);
}
void k_scales(const BlockIQ4_XS& block, int j, uint8_t* out) {
  int8_t scales[8];
  unpack_scales(block, scales);
  out[0] = static_cast<uint8_t>(scales[j]);
}

// d, and m if there is one.
void block_scales(const WeightFormat& f, const uint8_t* block, uint8_t* out) {
  if (f.d_type == ScaleType::e8m0) {
    const bf16 d = e8m0_scale(block[f.d]);
    std::memcpy(out, &d, 2);
    return;
  }
  std::memcpy(out, block + f.d, 2);
  if (f.m >= 0) std::memcpy(out + 2, block + f.m, 2);
}

void put_code(const WeightFormat& f, uint8_t code, int v, uint8_t* q, uint8_t* h) {
  const auto or_into = [](uint8_t& byte, int bits) { byte = static_cast<uint8_t>(byte | bits); };
  if (f.bits == 8) {
    q[v] = code;
  } else if (f.bits == 2) {
    or_into(q[v / 4], code << (v % 4 * 2));
  } else {
    or_into(q[v % 16], (code & 15) << (v / 16 * 4));
  }
  if (f.bits == 5) or_into(h[v / 8], code >> 4 << (v % 8));
  if (f.bits == 6) or_into(h[v / 4], code >> 4 << (v % 4 * 2));
}

template <typename Block>
void pack_blocks(const WeightFormat& f, const PlaneArgs& planes, int64_t row, const void* source, uint8_t* memory) {
  const GroupBytes bytes = group_bytes(f);
  const int groups_per_block = f.block / kGroup;
  for (int64_t g = 0; g < planes.groups; ++g) {
    Block block;
    std::memcpy(&block, static_cast<const char*>(source) + g / groups_per_block * f.bytes, sizeof block);
    const int j = static_cast<int>(g % groups_per_block);
    const int64_t at = row * planes.groups + g;
    int8_t levels[256];
    unpack_levels(block, levels);
    uint8_t* q = memory + planes.q + at * bytes.q;
    uint8_t* h = memory + planes.h + at * bytes.h;
    for (int v = 0; v < kGroup; ++v) put_code(f, code_of(f, levels[j * kGroup + v]), v, q, h);
    uint8_t* s = memory + planes.s + at * bytes.s;
    uint8_t* d = memory + planes.d + at / groups_per_block * bytes.d;
    block_scales(f, reinterpret_cast<const uint8_t*>(&block), f.block == kGroup ? s : d);
    k_scales(block, j, s);
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

void pack_row(DType dtype, const PlaneLayout& layout, int64_t row, const void* source, std::span<std::byte> planes) {
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

}  // namespace inferno::metal
