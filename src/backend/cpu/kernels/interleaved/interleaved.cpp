#include "backend/cpu/kernels/interleaved/interleaved.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/block_parts.h"

namespace inferno {
namespace {

constexpr int kLanes = 16;
constexpr int kVectors = 8;

// The levels of one tile, each below 2^bits: vector c, byte position i.
using Levels = uint8_t[kVectors][kLanes];

uint8_t byte_of(int value) {
  return static_cast<uint8_t>(value);
}

// Signed levels are in the high bits of their byte, so that an and or one shift leaves level * 2^(8 - bits); unsigned
// ones in the low bits. Byte j of lane i is tile[j][i].
template <int kBits, bool kSigned>
void pack_lane(const Levels& u, int i, uint8_t (*b)[kLanes]) noexcept {
  const auto level = [&](int c) { return static_cast<unsigned>(u[c][i]); };
  const auto put = [&](int j, unsigned bits) { b[j][i] = static_cast<uint8_t>(bits); };
  if constexpr (kBits == 8) {
    for (int j = 0; j < 8; ++j) put(j, level(j));
  } else if constexpr (kBits == 4) {
    for (int j = 0; j < 4; ++j) put(j, level(j) | level(j + 4) << 4);
  } else if constexpr (kBits == 2) {
    put(0, level(0) | level(1) << 2 | level(2) << 4 | level(3) << 6);
    put(1, level(4) | level(5) << 2 | level(6) << 4 | level(7) << 6);
  } else if constexpr (kBits == 3) {
    put(0, level(0) << 5 | level(1) << 2 | level(6) >> 1);
    put(1, level(2) << 5 | level(3) << 2 | (level(6) & 1) << 1 | level(7) >> 2);
    put(2, level(4) << 5 | level(5) << 2 | (level(7) & 3));
  } else if constexpr (kBits == 6) {
    put(0, level(0) << 2 | level(3) >> 4);
    put(1, level(1) << 2 | (level(3) >> 2 & 3));
    put(2, level(2) << 2 | (level(3) & 3));
    put(3, level(4) << 2 | level(7) >> 4);
    put(4, level(5) << 2 | (level(7) >> 2 & 3));
    put(5, level(6) << 2 | (level(7) & 3));
  } else if constexpr (kSigned) {
    put(0, level(0) << 3 | level(5) >> 2);
    put(1, level(1) << 3 | (level(5) & 3) << 1 | level(6) >> 4);
    put(2, level(2) << 3 | (level(6) >> 1 & 7));
    put(3, level(3) << 3 | (level(6) & 1) << 2 | level(7) >> 3);
    put(4, level(4) << 3 | (level(7) & 7));
  } else {
    put(0, level(0) | (level(5) & 7) << 5);
    put(1, level(1) | (level(5) >> 3) << 5 | (level(6) & 1) << 7);
    put(2, level(2) | (level(6) >> 1 & 7) << 5);
    put(3, level(3) | (level(6) >> 4) << 5 | (level(7) & 3) << 6);
    put(4, level(4) | (level(7) >> 2) << 5);
  }
}

template <int kBits, bool kSigned>
void unpack_lane(const uint8_t* b, int* u) noexcept {
  if constexpr (kBits == 8) {
    for (int i = 0; i < 8; ++i) u[i] = b[i];
  } else if constexpr (kBits == 4) {
    for (int i = 0; i < 4; ++i) {
      u[i] = b[i] & 15;
      u[i + 4] = b[i] >> 4;
    }
  } else if constexpr (kBits == 2) {
    for (int i = 0; i < 8; ++i) u[i] = (b[i / 4] >> (2 * (i % 4))) & 3;
  } else if constexpr (kBits == 3) {
    for (int i = 0; i < 6; ++i) u[i] = (b[i / 2] >> (i % 2 == 0 ? 5 : 2)) & 7;
    u[6] = ((b[0] & 3) << 1) | ((b[1] >> 1) & 1);
    u[7] = ((b[1] & 1) << 2) | (b[2] & 3);
  } else if constexpr (kBits == 6) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) u[4 * i + j] = b[3 * i + j] >> 2;
      u[4 * i + 3] = ((b[3 * i] & 3) << 4) | ((b[3 * i + 1] & 3) << 2) | (b[3 * i + 2] & 3);
    }
  } else if constexpr (kSigned) {
    for (int i = 0; i < 5; ++i) u[i] = b[i] >> 3;
    u[5] = ((b[0] & 7) << 2) | ((b[1] >> 1) & 3);
    u[6] = ((b[1] & 1) << 4) | ((b[2] & 7) << 1) | ((b[3] >> 2) & 1);
    u[7] = ((b[3] & 3) << 3) | (b[4] & 7);
  } else {
    for (int i = 0; i < 5; ++i) u[i] = b[i] & 31;
    u[5] = (b[0] >> 5) | (((b[1] >> 5) & 3) << 3);
    u[6] = (b[1] >> 7) | ((b[2] >> 5) << 1) | (((b[3] >> 5) & 1) << 4);
    u[7] = (b[3] >> 6) | ((b[4] >> 5) << 2);
  }
}

template <int kBits, bool kSigned>
void pack_tile(const Levels& u, uint8_t* tile) noexcept {
  uint8_t bytes[kBits][kLanes];
  for (int i = 0; i < kLanes; ++i) pack_lane<kBits, kSigned>(u, i, bytes);
  std::memcpy(tile, bytes, sizeof(bytes));
}

// ---- whole groups

template <InterleavedFormat kFormat>
int64_t group_bytes(int64_t k) {
  return k / kFormat.block * InterleavedBlock<kFormat>::kBytes;
}

// The index of scale or minimum j of row r in its array.
template <int kSubs>
int scale_index(int r, int j) {
  return r / 4 * 4 * kSubs + j * 4 + r % 4;
}
template <int kSubs>
int minimum_index(int r, int j) {
  return r / 4 * 4 * kSubs + j / 4 * 16 + r % 4 * 4 + j % 4;
}

// The place of column c of row r in a tile. Four columns from a multiple of four on are contiguous.
struct Place {
  int vector;
  int byte;
};
template <InterleavedFormat kFormat>
constexpr Place place_in_tile(int r, int c) {
  if (kFormat.row_pairs) return {c / 8 * 2 + r / 2, r % 2 * 8 + c % 8};
  return {c / 4, 4 * r + c % 4};
}

template <InterleavedFormat kFormat, typename Block>
void pack(const void* rows, int64_t count, int64_t k, void* group) noexcept {
  using Layout = InterleavedBlock<kFormat>;
  constexpr uint8_t kMask = (1 << kFormat.bits) - 1;
  const int64_t blocks = k / kFormat.block;
  BlockParts parts[kInterleavedRows] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* out = static_cast<uint8_t*>(group) + b * Layout::kBytes;
    for (int64_t r = 0; r < count; ++r) split_block(static_cast<const Block*>(rows)[r * blocks + b], &parts[r]);
    for (int r = 0; r < kInterleavedRows; ++r) {
      const BlockParts& row = parts[r];
      std::memcpy(out + Layout::kD + Layout::kDBytes * r, &row.d, Layout::kDBytes);
      if (kFormat.minimums) std::memcpy(out + Layout::kM + 2 * r, &row.m, 2);
      if constexpr (Layout::kScaled) {
        for (int j = 0; j < Layout::kSubs; ++j) out[Layout::kScales + scale_index<Layout::kSubs>(r, j)] = row.scales[j];
      }
    }
    if constexpr (Layout::kScaled && kFormat.minimums) {
      for (int r = 0; r < kInterleavedRows; ++r) {
        for (int j = 0; j < Layout::kSubs; ++j) {
          uint8_t& byte = out[Layout::kMins + minimum_index<Layout::kSubs>(r, j)];
          byte = kFormat.joined_scales ? byte_of(byte | (parts[r].minimums[j] << 4)) : parts[r].minimums[j];
        }
      }
    }
    for (int t = 0; t < kFormat.block / 32 * 2; ++t) {
      Levels u;
      for (int r = 0; r < 4; ++r) {
        const int8_t* levels = parts[t % 2 * 4 + r].levels + t / 2 * 32;
        for (int c = 0; c < 32; c += 4) {
          const Place place = place_in_tile<kFormat>(r, c);
          std::memcpy(&u[place.vector][place.byte], levels + c, 4);
        }
      }
      for (auto& vector : u) {
        for (uint8_t& level : vector) level &= kMask;
      }
      pack_tile<kFormat.bits, kFormat.is_signed>(u, out + Layout::kTiles + t * Layout::kTileBytes);
    }
  }
}

template <InterleavedFormat kFormat, typename Block>
void unpack_row(const void* group, int64_t row_in_group, int64_t k, void* row) noexcept {
  using Layout = InterleavedBlock<kFormat>;
  constexpr int kSideBySide = kFormat.row_pairs ? 8 : 4;  // columns of a row in one vector
  const int r = static_cast<int>(row_in_group);
  for (int64_t b = 0; b < k / kFormat.block; ++b) {
    const uint8_t* in = static_cast<const uint8_t*>(group) + b * Layout::kBytes;
    BlockParts parts;
    std::memcpy(&parts.d, in + Layout::kD + Layout::kDBytes * r, Layout::kDBytes);
    if (kFormat.minimums) std::memcpy(&parts.m, in + Layout::kM + 2 * r, 2);
    if constexpr (Layout::kScaled) {
      for (int j = 0; j < Layout::kSubs; ++j) {
        const uint8_t scale = in[Layout::kScales + scale_index<Layout::kSubs>(r, j)];
        const uint8_t minimum = in[Layout::kMins + minimum_index<Layout::kSubs>(r, j)];
        parts.scales[j] = kFormat.joined_scales ? scale & 15 : scale;
        parts.minimums[j] = kFormat.joined_scales ? byte_of(minimum >> 4) : minimum;
      }
    }
    for (int t = 0; t < kFormat.block / 32; ++t) {
      const uint8_t* tile = in + Layout::kTiles + (2 * t + r / 4) * Layout::kTileBytes;
      for (int i = 0; i < kSideBySide; ++i) {
        uint8_t bytes[kFormat.bits];
        int u[kVectors];
        for (int v = 0; v < kFormat.bits; ++v) bytes[v] = tile[v * kLanes + place_in_tile<kFormat>(r % 4, i).byte];
        unpack_lane<kFormat.bits, kFormat.is_signed>(bytes, u);
        for (int c = i; c < 32; c += kSideBySide) {
          // Signed levels: the top bit of the code is the sign.
          const int sign = kFormat.is_signed ? 1 << (kFormat.bits - 1) : 0;
          parts.levels[32 * t + c] = static_cast<int8_t>((u[place_in_tile<kFormat>(r % 4, c).vector] ^ sign) - sign);
        }
      }
    }
    join_block(parts, static_cast<Block*>(row) + b);
  }
}

template <InterleavedFormat kFormat, typename Block>
constexpr WeightLayout kLayout = {kFormat.row_pairs ? "8 rows interleaved, by pairs" : "8 rows interleaved",
                                  kInterleavedRows, group_bytes<kFormat>, pack<kFormat, Block>,
                                  unpack_row<kFormat, Block>};

}  // namespace

const WeightLayout& interleaved_layout(DType dtype) {
  switch (dtype) {
#define QUANTIZED(name, Name, ...) \
  case DType::name:                \
    return kLayout<kFormat##Name, Block##Name>;
#include "tensor/weight_formats.inc"
    default:
      INFERNO_CHECK(false);
  }
}

const WeightLayout& row_pairs_layout() {
  return kLayout<kFormatQ8_0Pairs, BlockQ8_0>;
}

}  // namespace inferno
