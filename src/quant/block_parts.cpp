#include "quant/block_parts.h"

#include <algorithm>

#include "quant/k_scales.h"

namespace inferno {
namespace {

// The inverse of each join below. Written as plain loops over bytes, which compilers turn into vector code: every
// weight passes through here at load.
void split_halves(const uint8_t* qs, int offset, int8_t* levels) noexcept {
  for (int i = 0; i < 16; ++i) levels[i] = static_cast<int8_t>((qs[i] & 15) - offset);
  for (int i = 0; i < 16; ++i) levels[i + 16] = static_cast<int8_t>((qs[i] >> 4) - offset);
}

void add_fifths(const uint8_t* qh, int8_t* levels) noexcept {
  for (int byte = 0; byte < 4; ++byte) {
    for (int i = 0; i < 8; ++i) {
      levels[byte * 8 + i] = static_cast<int8_t>(levels[byte * 8 + i] + (((qh[byte] >> i) & 1) << 4));
    }
  }
}

void split_k_halves(const uint8_t* qs, int8_t* levels) noexcept {
  for (int p = 0; p < 4; ++p) {
    for (int i = 0; i < 32; ++i) levels[64 * p + i] = static_cast<int8_t>(qs[32 * p + i] & 15);
    for (int i = 0; i < 32; ++i) levels[64 * p + 32 + i] = static_cast<int8_t>(qs[32 * p + i] >> 4);
  }
}

void split_quarters(const uint8_t* qs, int offset, int8_t* levels) noexcept {
  for (int h = 0; h < 2; ++h) {
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < 32; ++i) {
        levels[128 * h + 32 * p + i] = static_cast<int8_t>(((qs[32 * h + i] >> (2 * p)) & 3) - offset);
      }
    }
  }
}

// Bit p of byte i, times `value`, onto level 32p + i.
void add_bits(const uint8_t* bits, int value, int8_t* levels) noexcept {
  for (int p = 0; p < 8; ++p) {
    for (int i = 0; i < 32; ++i) {
      levels[32 * p + i] = static_cast<int8_t>(levels[32 * p + i] + ((bits[i] >> p) & 1) * value);
    }
  }
}

// Levels i and i + 16 share byte i.
void join_halves(const int8_t* levels, int offset, uint8_t* qs) noexcept {
  for (int i = 0; i < 16; ++i) {
    qs[i] = static_cast<uint8_t>(((levels[i] + offset) & 15) | (((levels[i + 16] + offset) & 15) << 4));
  }
}

void join_fifths(const int8_t* levels, int offset, uint8_t* qh) noexcept {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (((levels[byte * 8 + i] + offset) >> 4) & 1) << i;
    qh[byte] = static_cast<uint8_t>(bits);
  }
}

// The 4 low bits of 256 levels as Q4_K and Q5_K store them.
void join_k_halves(const int8_t* levels, uint8_t* qs) noexcept {
  for (int p = 0; p < 4; ++p) {
    for (int i = 0; i < 32; ++i) {
      qs[32 * p + i] = static_cast<uint8_t>((levels[64 * p + i] & 15) | ((levels[64 * p + 32 + i] & 15) << 4));
    }
  }
}

// 2 bits of each level, from bit `shift` of level + offset, as Q2_K and Q3_K store their low bits.
void join_quarters(const int8_t* levels, int offset, uint8_t* qs) noexcept {
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int p = 0; p < 4; ++p) byte |= ((levels[128 * h + 32 * p + i] + offset) & 3) << (2 * p);
      qs[32 * h + i] = static_cast<uint8_t>(byte);
    }
  }
}

}  // namespace

void split_block(const BlockQ8_0& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  std::copy_n(block.qs, 32, parts->levels);
}
void join_block(const BlockParts& parts, BlockQ8_0* block) noexcept {
  block->d = parts.d;
  std::copy_n(parts.levels, 32, block->qs);
}

void split_block(const BlockQ4_0& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  split_halves(block.qs, 8, parts->levels);
}
void join_block(const BlockParts& parts, BlockQ4_0* block) noexcept {
  block->d = parts.d;
  join_halves(parts.levels, 8, block->qs);
}

void split_block(const BlockQ4_1& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  parts->m = block.m;
  split_halves(block.qs, 0, parts->levels);
}
void join_block(const BlockParts& parts, BlockQ4_1* block) noexcept {
  block->d = parts.d;
  block->m = parts.m;
  join_halves(parts.levels, 0, block->qs);
}

void split_block(const BlockQ5_0& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  split_halves(block.qs, 16, parts->levels);
  add_fifths(block.qh, parts->levels);
}
void join_block(const BlockParts& parts, BlockQ5_0* block) noexcept {
  block->d = parts.d;
  join_halves(parts.levels, 16, block->qs);
  join_fifths(parts.levels, 16, block->qh);
}

void split_block(const BlockQ5_1& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  parts->m = block.m;
  split_halves(block.qs, 0, parts->levels);
  add_fifths(block.qh, parts->levels);
}
void join_block(const BlockParts& parts, BlockQ5_1* block) noexcept {
  block->d = parts.d;
  block->m = parts.m;
  join_halves(parts.levels, 0, block->qs);
  join_fifths(parts.levels, 0, block->qh);
}

void split_block(const BlockQ2_K& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  parts->m = block.dmin;
  split_quarters(block.qs, 0, parts->levels);
  unpack_scales(block, parts->scales, parts->minimums);
}
void join_block(const BlockParts& parts, BlockQ2_K* block) noexcept {
  block->d = parts.d;
  block->dmin = parts.m;
  join_quarters(parts.levels, 0, block->qs);
  for (int j = 0; j < 16; ++j) block->scales[j] = static_cast<uint8_t>(parts.scales[j] | (parts.minimums[j] << 4));
}

void split_block(const BlockQ3_K& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  split_quarters(block.qs, 4, parts->levels);
  add_bits(block.hmask, 4, parts->levels);
  int8_t scales[16];
  unpack_scales(block, scales);
  std::transform(scales, scales + 16, parts->scales, [](int8_t s) { return static_cast<uint8_t>(s); });
}
void join_block(const BlockParts& parts, BlockQ3_K* block) noexcept {
  block->d = parts.d;
  join_quarters(parts.levels, 4, block->qs);
  for (int i = 0; i < 32; ++i) {
    int byte = 0;
    for (int p = 0; p < 8; ++p) byte |= (((parts.levels[32 * p + i] + 4) >> 2) & 1) << p;
    block->hmask[i] = static_cast<uint8_t>(byte);
  }
  int packed[12] = {};
  for (int j = 0; j < 16; ++j) {
    const int scale = static_cast<int8_t>(parts.scales[j]) + 32;
    packed[j % 8] |= (scale & 15) << (j / 8 * 4);
    packed[8 + j % 4] |= (scale >> 4) << (j / 4 * 2);
  }
  std::transform(packed, packed + 12, block->scales, [](int byte) { return static_cast<uint8_t>(byte); });
}

void split_block(const BlockQ4_K& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  parts->m = block.dmin;
  split_k_halves(block.qs, parts->levels);
  unpack_scales(block, parts->scales, parts->minimums);
}
void join_block(const BlockParts& parts, BlockQ4_K* block) noexcept {
  block->d = parts.d;
  block->dmin = parts.m;
  join_k_halves(parts.levels, block->qs);
  pack_k_scales(parts.scales, parts.minimums, block->scales);
}

void split_block(const BlockQ5_K& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  parts->m = block.dmin;
  split_k_halves(block.qs, parts->levels);
  add_bits(block.qh, 16, parts->levels);
  unpack_scales(block, parts->scales, parts->minimums);
}
void join_block(const BlockParts& parts, BlockQ5_K* block) noexcept {
  block->d = parts.d;
  block->dmin = parts.m;
  join_k_halves(parts.levels, block->qs);
  pack_k_scales(parts.scales, parts.minimums, block->scales);
  for (int i = 0; i < 32; ++i) {
    int byte = 0;
    for (int p = 0; p < 8; ++p) byte |= ((parts.levels[32 * p + i] >> 4) & 1) << p;
    block->qh[i] = static_cast<uint8_t>(byte);
  }
}

void split_block(const BlockQ6_K& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  for (int h = 0; h < 2; ++h) {
    int8_t* levels = parts->levels + 128 * h;
    for (int i = 0; i < 64; ++i) levels[i] = static_cast<int8_t>((block.ql[64 * h + i] & 15) - 32);
    for (int i = 0; i < 64; ++i) levels[i + 64] = static_cast<int8_t>((block.ql[64 * h + i] >> 4) - 32);
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < 32; ++i) {
        levels[32 * p + i] = static_cast<int8_t>(levels[32 * p + i] + (((block.qh[32 * h + i] >> (2 * p)) & 3) << 4));
      }
    }
  }
  std::transform(block.scales, block.scales + 16, parts->scales, [](int8_t s) { return static_cast<uint8_t>(s); });
}
void join_block(const BlockParts& parts, BlockQ6_K* block) noexcept {
  block->d = parts.d;
  for (int h = 0; h < 2; ++h) {
    const int8_t* levels = parts.levels + 128 * h;
    for (int i = 0; i < 64; ++i) {
      block->ql[64 * h + i] = static_cast<uint8_t>(((levels[i] + 32) & 15) | (((levels[i + 64] + 32) & 15) << 4));
    }
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int p = 0; p < 4; ++p) byte |= ((levels[32 * p + i] + 32) >> 4) << (2 * p);
      block->qh[32 * h + i] = static_cast<uint8_t>(byte);
    }
  }
  std::transform(parts.scales, parts.scales + 16, block->scales, [](uint8_t s) { return static_cast<int8_t>(s); });
}

void split_block(const BlockIQ4_NL& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  split_halves(block.qs, 0, parts->levels);
}
void join_block(const BlockParts& parts, BlockIQ4_NL* block) noexcept {
  block->d = parts.d;
  join_halves(parts.levels, 0, block->qs);
}

void split_block(const BlockMXFP4& block, BlockParts* parts) noexcept {
  parts->d = static_cast<f16>(block.e);
  split_halves(block.qs, 0, parts->levels);
}
void join_block(const BlockParts& parts, BlockMXFP4* block) noexcept {
  block->e = static_cast<uint8_t>(parts.d);
  join_halves(parts.levels, 0, block->qs);
}

void split_block(const BlockIQ4_XS& block, BlockParts* parts) noexcept {
  parts->d = block.d;
  for (int j = 0; j < 8; ++j) split_halves(block.qs + 16 * j, 0, parts->levels + 32 * j);
  int8_t scales[8];
  unpack_scales(block, scales);
  std::transform(scales, scales + 8, parts->scales, [](int8_t s) { return static_cast<uint8_t>(s); });
}
void join_block(const BlockParts& parts, BlockIQ4_XS* block) noexcept {
  block->d = parts.d;
  for (int j = 0; j < 8; ++j) join_halves(parts.levels + 32 * j, 0, block->qs + 16 * j);
  int low[4] = {};
  int high = 0;
  for (int j = 0; j < 8; ++j) {
    const int scale = static_cast<int8_t>(parts.scales[j]) + 32;
    low[j / 2] |= (scale & 15) << (j % 2 * 4);
    high |= (scale >> 4) << (2 * j);
  }
  std::transform(low, low + 4, block->scales_l, [](int byte) { return static_cast<uint8_t>(byte); });
  block->scales_h = static_cast<uint16_t>(high);
}

}  // namespace inferno
