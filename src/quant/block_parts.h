// Splits a canonical block into levels and scales, and joins them again, losslessly.
#pragma once

#include <cstdint>

#include "quant/blocks.h"

namespace inferno {

struct BlockParts {
  f16 d = {};          // MXFP4: e
  f16 m = {};          // m or dmin
  int8_t levels[256];  // without their offset where the format is signed; the codes of a codebook
  uint8_t scales[16];  // K formats: the bytes of the scales, signed or not
  uint8_t minimums[16];
};

#define QUANTIZED(name, Name, ...)                                        \
  void split_block(const Block##Name& block, BlockParts* parts) noexcept; \
  void join_block(const BlockParts& parts, Block##Name* block) noexcept;
#include "tensor/weight_formats.inc"

}  // namespace inferno
