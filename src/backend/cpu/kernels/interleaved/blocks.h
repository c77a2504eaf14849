// Splits a canonical block into levels and scales, and joins them again, losslessly.
#pragma once

#include <cstdint>

#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace inferno {

struct BlockParts {
  f16 d = {};
  f16 m = {};          // m or dmin
  int8_t levels[256];  // without their offset where the format is signed
  uint8_t scales[16];  // K formats: the bytes of the scales, signed or not
  uint8_t minimums[16];
};

void split_block(const BlockQ8_0& block, BlockParts* parts) noexcept;
void split_block(const BlockQ4_0& block, BlockParts* parts) noexcept;
void split_block(const BlockQ4_1& block, BlockParts* parts) noexcept;
void split_block(const BlockQ5_0& block, BlockParts* parts) noexcept;
void split_block(const BlockQ5_1& block, BlockParts* parts) noexcept;
void split_block(const BlockQ2_K& block, BlockParts* parts) noexcept;
void split_block(const BlockQ3_K& block, BlockParts* parts) noexcept;
void split_block(const BlockQ4_K& block, BlockParts* parts) noexcept;
void split_block(const BlockQ5_K& block, BlockParts* parts) noexcept;
void split_block(const BlockQ6_K& block, BlockParts* parts) noexcept;

void join_block(const BlockParts& parts, BlockQ8_0* block) noexcept;
void join_block(const BlockParts& parts, BlockQ4_0* block) noexcept;
void join_block(const BlockParts& parts, BlockQ4_1* block) noexcept;
void join_block(const BlockParts& parts, BlockQ5_0* block) noexcept;
void join_block(const BlockParts& parts, BlockQ5_1* block) noexcept;
void join_block(const BlockParts& parts, BlockQ2_K* block) noexcept;
void join_block(const BlockParts& parts, BlockQ3_K* block) noexcept;
void join_block(const BlockParts& parts, BlockQ4_K* block) noexcept;
void join_block(const BlockParts& parts, BlockQ5_K* block) noexcept;
void join_block(const BlockParts& parts, BlockQ6_K* block) noexcept;

}  // namespace inferno
