// The registry of weight formats: the element types by name and what everybody needs to know of each, generated from
// weight_formats.inc.
//
// Types and constants only: kernel files include this header, and must not share functions with other files
// (backend/cpu/kernels/kernel_table.h says why).
#pragma once

#include <cstdint>

namespace inferno {

// In the order of the list. i32 is no type of a weight.
enum class DType : uint8_t {
#define FORMAT(name, Name, ...) name,
#include "tensor/weight_formats.inc"
  i32
};
inline constexpr int kDTypeCount = static_cast<int>(DType::i32) + 1;

enum class Codebook : uint8_t {
  none,
#define CODEBOOK(name, ...) name,
#include "tensor/weight_formats.inc"
};
// By Codebook: the value of each code.
inline constexpr int8_t kCodebooks[][16] = {
    {},
#define CODEBOOK(name, ...) {__VA_ARGS__},
#include "tensor/weight_formats.inc"
};

// e8m0: a byte e, d = 2^(e - 128). (The format means 2^(e - 127), of values that are half those of its codebook.)
enum class ScaleType : uint8_t { f16, e8m0 };

// One block holds `block` values in `bytes` bytes; plain types have blocks of one value. A quantized block is a scale d
// and `block` levels of `bits` bits:
//
//   value = d * level                              blocks of 32
//   value = d * level + m                          blocks of 32 with m
//   value = d * scale_j * level                    super-blocks: sub-block j is `sub` values and has a scale
//   value = d * scale_j * level - m * minimum_j    and, with m, a minimum
//
// A signed level is stored with 2^(bits - 1) added, or as two's complement; with a codebook it is the value of a code.
struct WeightFormat {
  int gguf_id;         // the number of the type in GGUF files
  uint32_t file_type;  // general.file_type of a model of this type, as other programs number it
  int block = 1;
  int bytes;
  DType fallback = DType::f16;  // what quantize takes for rows that are no multiple of the block
  int bits;
  bool is_signed = false;
  Codebook codebook = Codebook::none;
  int sub = 0;  // super-blocks: values that share a scale
  int d = 0;    // the byte of the block that d starts at
  ScaleType d_type = ScaleType::f16;
  int m = -1;                  // the byte that m (f16) starts at; -1: none
  bool joined_scales = false;  // scale and minimum of a sub-block share a byte
};

// By DType.
inline constexpr WeightFormat kWeightFormats[] = {
#define FORMAT(name, Name, ...) {__VA_ARGS__},
#include "tensor/weight_formats.inc"
};

}  // namespace inferno
