// A weight for the Metal kernels: the planes of backend/device/weight_planes.h in one buffer, each from a multiple of
// 16 bytes on. Levels are in the order of their values:
//
//   q  8 bits: 32 bytes. 3 to 6 bits and codes of codebooks: 16 bytes, byte v % 16 holds the low four bits of value v
//      in half v / 16. 2 bits: 8 bytes, word v / 16, bits 2 * (v % 16).
//   h  5 bits: 4 bytes, bit v. 6 bits: 8 bytes, word v / 16, bits 2 * (v % 16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/device/weight_planes.h"
#include "backend/metal/kernels/args.h"
#include "tensor/dtype.h"

namespace inferno::metal {

struct LevelOrder {
  static constexpr int64_t kAlignment = 16;

  static constexpr device::GroupBytes level_bytes(int bits) {
    return {.q = bits == 8 ? 32 : bits == 2 ? 8 : 16, .h = bits == 5 ? 4 : bits == 6 ? 8 : 0};
  }
  static constexpr device::BitField low(int bits, int v) {
    if (bits == 8) return {v, 0, 8};
    if (bits == 2) return {v / 4, v % 4 * 2, 2};
    return {v % 16, v / 16 * 4, 4};
  }
  static constexpr device::BitField high(int bits, int v) {
    if (bits == 5) return {v / 8, v % 8, 1};
    if (bits == 6) return {v / 4, v % 4 * 2, 2};
    return {};
  }
  static constexpr int64_t q_byte(int bits, int g, int /*groups*/, int i) {
    return int64_t{g} * level_bytes(bits).q + i;
  }
};

// Where the planes of a weight [rows, cols] are, and how many bytes they have together. cols is a multiple of the block
// size.
struct PlaneLayout {
  PlaneArgs args{};
  uint64_t bytes = 0;
};
[[nodiscard]] PlaneLayout plane_layout(DType dtype, int64_t rows, int64_t cols);

// One row in the file's form into its places. planes: all of the layout's bytes.
void pack_row(DType dtype, const PlaneLayout& layout, int64_t row, const std::byte* source,
              std::span<std::byte> planes);
// The reverse; lossless.
void unpack_row(DType dtype, const PlaneLayout& layout, int64_t row, std::span<const std::byte> planes, std::byte* out);

}  // namespace inferno::metal
