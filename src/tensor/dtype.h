// The element types inferno can compute with: one row of a table each.
//
// A type stores its values in blocks of `block_size` elements and `block_bytes` bytes; plain types have blocks of one.
// gguf_id is the number GGUF files use for the type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace inferno {

enum class DType : uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, i32 };

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as printed and as users type it, case-insensitively
  int block_size;         // elements per block
  int block_bytes;        // bytes per block
  int gguf_id;
};

inline constexpr std::array<DTypeInfo, 14> kDTypes = {{
    {DType::f32, "F32", 1, 4, 0},
    {DType::f16, "F16", 1, 2, 1},
    {DType::bf16, "BF16", 1, 2, 30},
    {DType::q8_0, "Q8_0", 32, 34, 8},
    {DType::q4_0, "Q4_0", 32, 18, 2},
    {DType::q4_1, "Q4_1", 32, 20, 3},
    {DType::q5_0, "Q5_0", 32, 22, 6},
    {DType::q5_1, "Q5_1", 32, 24, 7},
    {DType::q2_k, "Q2_K", 256, 84, 10},
    {DType::q3_k, "Q3_K", 256, 110, 11},
    {DType::q4_k, "Q4_K", 256, 144, 12},
    {DType::q5_k, "Q5_K", 256, 176, 13},
    {DType::q6_k, "Q6_K", 256, 210, 14},
    {DType::i32, "I32", 1, 4, 26},
}};
inline constexpr int kDTypeCount = static_cast<int>(kDTypes.size());

[[nodiscard]] constexpr const DTypeInfo& dtype_info(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}
[[nodiscard]] constexpr std::string_view dtype_name(DType dtype) {
  return dtype_info(dtype).name;
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
