// The element types inferno can compute with: one row of a table each.
//
// A type stores its values in blocks of `block_size` elements and `block_bytes` bytes; plain types have blocks of one.
// gguf_id is the number GGUF files use for the type. Weight types are listed in weight_formats.inc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/weight_format.h"

namespace inferno {

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as printed and as users type it, case-insensitively
  int block_size;         // elements per block
  int block_bytes;        // bytes per block
  int gguf_id;
};

[[nodiscard]] constexpr DTypeInfo dtype_row(DType dtype, std::string_view name) {
  const WeightFormat& format = kWeightFormats[static_cast<size_t>(dtype)];
  return {dtype, name, format.block, format.bytes, format.gguf_id};
}
inline constexpr std::array<DTypeInfo, kDTypeCount> kDTypes = {{
#define FORMAT(name, Name, ...) dtype_row(DType::name, #Name),
#include "tensor/weight_formats.inc"
    {DType::i32, "I32", 1, 4, 26},
}};

// The types a model's weights may have, and those among them with blocks.
inline constexpr DType kWeightTypes[] = {
#define FORMAT(name, Name, ...) DType::name,
#include "tensor/weight_formats.inc"
};
inline constexpr DType kQuantizedTypes[] = {
#define QUANTIZED(name, Name, ...) DType::name,
#include "tensor/weight_formats.inc"
};

[[nodiscard]] constexpr const DTypeInfo& dtype_info(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}
[[nodiscard]] constexpr std::string_view dtype_name(DType dtype) {
  return dtype_info(dtype).name;
}

// dtype is a weight type.
[[nodiscard]] constexpr const WeightFormat& weight_format(DType dtype) {
  return kWeightFormats[static_cast<size_t>(dtype)];
}

// Bytes of `elements` consecutive values; elements must be a multiple of the block size.
[[nodiscard]] constexpr int64_t row_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  return elements / info.block_size * info.block_bytes;
}

[[nodiscard]] constexpr bool is_quantized(DType dtype) {
  return dtype_info(dtype).block_size > 1;
}
// K formats have super-blocks of 256 and meet activations quantized per 256.
[[nodiscard]] constexpr bool is_k_format(DType dtype) {
  return dtype_info(dtype).block_size == 256;
}

[[nodiscard]] std::optional<DType> dtype_from_gguf(int64_t gguf_id);
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);  // case-insensitive
// "F32, F16, BF16, Q8_0, ..." : what a model's weights may be stored as (i32 is not among them).
[[nodiscard]] std::string_view weight_dtype_names();

}  // namespace inferno
