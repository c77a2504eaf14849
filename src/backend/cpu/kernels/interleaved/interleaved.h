// Quantized weights with the rows of eight interleaved: one layout for every format, exactly what the file holds in
// another order (no level or scale is changed). Decoding reads each group as one contiguous stream, and a vector
// instruction finds the same columns of several rows side by side.
//
// A group is 8 rows; for each block of columns (32, or 256 for the K formats) it holds, in this order:
//   d      f16[8]          one per row; MXFP4: 8 bits
//   m      f16[8]          Q4_1, Q5_1: the offsets; Q2_K, Q4_K, Q5_K: dmin
//   scales 8 bits          K formats; for each half (rows 0-3, then 4-7), each sub-block, each row of the half
//   mins   8 bits          Q2_K, Q4_K, Q5_K; for each half, each four sub-blocks, each row: the four sub-blocks
//   tiles                  for each 32 columns, for each half: 4 rows x 32 columns in 16 * bits bytes
// Q2_K stores scale and minimum in one byte: scale i in the low half, minimum i in the high half.
//
// A tile is 8 vectors of 16 bytes; byte 4r + i of vector c is the level of row r, column 4c + i. In the layout by pairs
// of rows, which the 8-bit matrix instructions of Arm read, byte 8r + i of vector 2c + p is the level of row 2p + r,
// column 8c + i. Levels of fewer than 8 bits are packed lane by lane: the 8 levels u0..u7 that share a byte position
// become `bits` bytes (interleaved.cpp says how), arranged so that a few shifts per vector bring them back. Signed
// levels come back in the high bits of the byte, that is times 2^(8 - bits); unsigned ones in the low bits. Of formats
// with a codebook a tile holds the codes, as unsigned levels.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {

inline constexpr int64_t kInterleavedRows = 8;

struct InterleavedFormat {
  int bits;
  bool is_signed;
  int block;  // columns that share d
  int sub;    // columns that share a scale; = block in the plain formats
  bool minimums;
  bool joined_scales = false;  // scale and minimum in one byte
  bool row_pairs = false;      // the order of the levels in a tile
  Codebook codebook = Codebook::none;
  bool e8m0_d = false;  // d is a byte, ScaleType::e8m0

  // Of the levels that kernels multiply: those of a codebook are signed bytes, whatever the bits of a code.
  [[nodiscard]] consteval int level_bits() const { return codebook == Codebook::none ? bits : 8; }
  [[nodiscard]] consteval bool signed_levels() const { return is_signed || codebook != Codebook::none; }
};

consteval InterleavedFormat interleaved_format(const WeightFormat& format, bool row_pairs = false) {
  return {format.bits,
          format.is_signed,
          format.block,
          format.sub == 0 ? format.block : format.sub,
          format.m >= 0,
          format.joined_scales,
          row_pairs,
          format.codebook,
          format.d_type == ScaleType::e8m0};
}

// kFormatQ8_0 and so on.
#define QUANTIZED(name, Name, ...) inline constexpr InterleavedFormat kFormat##Name = interleaved_format({__VA_ARGS__});
#include "tensor/weight_formats.inc"
inline constexpr InterleavedFormat kFormatQ8_0Pairs =
    interleaved_format(kWeightFormats[static_cast<int>(DType::q8_0)], true);

// Offsets inside one block of a group. Members are constants, so nothing here becomes a function.
template <InterleavedFormat kFormat>
struct InterleavedBlock {
  static constexpr bool kScaled = kFormat.block == 256;
  static constexpr int kSubs = kFormat.block / kFormat.sub;
  static constexpr int kD = 0;
  static constexpr int kDBytes = kFormat.e8m0_d ? 1 : 2;  // of a row
  static constexpr int kM = 8 * kDBytes;
  static constexpr int kScales = kM + (kFormat.minimums ? 16 : 0);
  static constexpr int kScaleBytes = kScaled ? 8 * kSubs : 0;
  static constexpr int kMins = kFormat.joined_scales ? kScales : kScales + kScaleBytes;
  static constexpr int kMinBytes = kScaled && kFormat.minimums && !kFormat.joined_scales ? 8 * kSubs : 0;
  static constexpr int kTileBytes = 16 * kFormat.bits;
  static constexpr int kTiles = kScales + kScaleBytes + kMinBytes;
  static constexpr int kBytes = kTiles + kFormat.block / 32 * 2 * kTileBytes;
  // Signed levels are unpacked times 2^kFraction.
  static constexpr int kFraction = kFormat.is_signed ? 8 - kFormat.bits : 0;
};

// The layout of a quantized weight dtype.
[[nodiscard]] const WeightLayout& interleaved_layout(DType dtype);
// Q8_0 by pairs of rows.
[[nodiscard]] const WeightLayout& row_pairs_layout();
// Plain values of 2 or 4 bytes: for each column the 8 rows.
[[nodiscard]] const WeightLayout& column_interleaved_layout(int value_bytes);
// Plain values of 2 bytes: for each 4 columns the rows 0, 1, ... 7 with 4 columns each; k filled up with zeros.
[[nodiscard]] const WeightLayout& pair_interleaved_layout();
// Plain values of 2 bytes: panels of 16 rows, for each 2 columns the rows 0, 1, ... 15 with 2 columns each; k filled up
// with zeros to a multiple of 32. 32 columns of a panel are a right side of a matrix tile product.
[[nodiscard]] const WeightLayout& tile_panel_layout();

// Q8_0 in panels of 16 rows. For each two blocks of 32 columns: the levels of the one, of the other, then d of both,
// f16[16] each; the last block may be alone. Levels: for each 4 columns the rows 0, 1, ... 15 with 4 columns each, so
// that a block of a panel is a right side of a matrix tile product, and every vector of it is aligned.
struct BytePanel {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kLevelBytes = kRows * 32;  // of a block
  static constexpr int64_t kDBytes = kRows * 2;
  static constexpr int64_t kPairBytes = 2 * (kLevelBytes + kDBytes);
};
[[nodiscard]] const WeightLayout& byte_panel_layout();

}  // namespace inferno
