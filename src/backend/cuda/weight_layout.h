// How a weight is stored in device memory, for the GPU's loads and for the host's tests: the planes of
// backend/device/weight_planes.h, each row-major over (row, group), so that the 32 lanes of a warp read 32 adjacent
// groups with loads of 16 bytes. Levels are in the order of these kernels' operands:
//
//   q  4-bit parts: 16 bytes, byte v % 16 holds value v in half v / 16. Q8_0: two runs per row, first the first 16
//      bytes of every group, then the second 16. 2 bits: none, all are in h.
//   h  1 bit: byte v % 4, bit v / 4. 2 bits: word v / 16, byte v % 4, bits 2 * (v % 16 / 4)... A shift and a mask give
//      the bits of four consecutive values in the bytes of a dp4a operand.
#pragma once

#include <cstdint>

#include "backend/device/weight_planes.h"
#include "tensor/dtype.h"

namespace inferno::cuda {

using device::BitField;
using device::format_of;
using device::GroupBytes;
using device::kGroup;
using device::level_offset;

struct LevelOrder {
  static constexpr int64_t kAlignment = 256;  // cuBLAS and 16-byte loads like planes that start at multiples of this

  INFERNO_HOST_DEVICE static constexpr GroupBytes level_bytes(int bits) {
    GroupBytes bytes;
    bytes.q = bits == 8 ? 32 : bits == 2 ? 0 : 16;
    bytes.h = bits == 5 ? 4 : bits == 2 || bits == 6 ? 8 : 0;
    return bytes;
  }
  INFERNO_HOST_DEVICE static constexpr BitField low(int bits, int v) {
    if (bits == 8) return {v, 0, 8};
    if (bits == 2) return {};
    return {v % 16, v / 16 * 4, 4};
  }
  INFERNO_HOST_DEVICE static constexpr BitField high(int bits, int v) {
    if (bits == 5) return {v % 4, v / 4, 1};
    if (bits == 2 || bits == 6) return {v / 16 * 4 + v % 4, v % 16 / 4 * 2, 2};
    return {};
  }
  INFERNO_HOST_DEVICE static constexpr int64_t q_byte(int bits, int g, int groups, int i) {
    return (bits == 8 ? i / 16 * int64_t{groups} + g : g) * 16 + i % 16;
  }
};

// Whether this backend has kernels for weights of the type.
INFERNO_HOST_DEVICE constexpr bool has_kernels(DType dtype) {
  return dtype != DType::i32;
}
// Whether levels are looked up by codes.
INFERNO_HOST_DEVICE constexpr bool has_codebook(DType dtype) {
  return format_of(dtype).codebook != Codebook::none;
}
// Whether a block's scale is one byte, a power of two: the plane has it as bf16.
INFERNO_HOST_DEVICE constexpr bool has_byte_scale(DType dtype) {
  return format_of(dtype).d_type == ScaleType::e8m0;
}

INFERNO_HOST_DEVICE constexpr GroupBytes group_bytes(DType dtype) {
  return has_kernels(dtype) ? device::group_bytes<LevelOrder>(dtype) : GroupBytes{};
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

// A row of a quantized weight.
INFERNO_HOST_DEVICE constexpr device::PlaneRow<uint8_t> row_of(const Planes& p, DType dtype, int64_t row) {
  return device::row_of<LevelOrder>(dtype, device::PlaneRow<uint8_t>{p.q, p.h, p.s, p.d, p.groups}, row);
}

}  // namespace inferno::cuda
