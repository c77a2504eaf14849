// How a weight is stored for the Metal kernels: planes, so that every load is aligned and adjacent lanes read adjacent
// memory. GGUF's blocks of 17 to 210 bytes are not.
//
// A quantized row is cut into groups of 32 values; plane by plane, row-major over (row, group):
//
//   q  levels. 8 bits: 32 bytes. 3 to 6 bits and codes of codebooks: 16 bytes, byte v % 16 holds the low four bits of
//      value v in half v / 16. 2 bits: 8 bytes, word v / 16, bits 2 * (v % 16).
//   h  bits above four. 5 bits: 4 bytes, bit v. 6 bits: 8 bytes, word v / 16, bits 2 * (v % 16).
//   s  scales. Blocks of 32: d (f16; MXFP4: bf16) and m (f16) if there is one. Super-blocks: two bytes, the scale and
//      the minimum of the group, or one for each half: its scale, or with 4-bit minimums both.
//   d  super-blocks: f16 d, and f16 dmin if there is one, per 256 values.
//
// Signed levels are stored with their offset added. Plain types have q alone, rows `row_stride` bytes apart. Every
// plane begins at a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/metal/kernels/args.h"
#include "tensor/dtype.h"

namespace inferno::metal {

// Where the planes of a weight [rows, cols] are, and how many bytes they have together. cols is a multiple of the block
// size.
struct PlaneLayout {
  PlaneArgs args{};
  uint64_t bytes = 0;
};
[[nodiscard]] PlaneLayout plane_layout(DType dtype, int64_t rows, int64_t cols);

// One row in the file's form into its places. planes: all of the layout's bytes, zero before the first row.
void pack_row(DType dtype, const PlaneLayout& layout, int64_t row, const std::byte* source,
              std::span<std::byte> planes);
// The reverse; lossless.
void unpack_row(DType dtype, const PlaneLayout& layout, int64_t row, std::span<const std::byte> planes, std::byte* out);

}  // namespace inferno::metal
