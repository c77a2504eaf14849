// All tensor types a GGUF file may hold, whether inferno computes with them (DType) or only lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace inferno {

struct GgmlType {
  uint32_t id;            // the number in the file
  std::string_view name;  // "IQ4_XS"
  uint32_t block_size;    // elements per block
  uint32_t block_bytes;   // bytes per block
};

// Null for a number that names no type (among them those of types that were removed from the format).
[[nodiscard]] const GgmlType* find_ggml_type(uint32_t id);

}  // namespace inferno
