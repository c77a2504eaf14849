// The head of one GGUF file: everything before the tensor data, parsed and checked.
#pragma once

#include <cstdint>
#include <vector>

#include "gguf/byte_reader.h"
#include "gguf/gguf.h"

namespace inferno {

// Bounds that no real file comes near. They keep what a hostile file can make us allocate, beyond its own bytes, far
// below 64 MiB: an empty value or a tensor costs more in memory than in the file.
inline constexpr uint64_t kMaxHeadBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMaxMetadataCount = uint64_t{1} << 16;
inline constexpr uint64_t kMaxTensorCount = uint64_t{1} << 17;  // of all parts together
inline constexpr uint64_t kMaxNestedArrays = uint64_t{1} << 16;
inline constexpr int kMaxArrayDepth = 4;
inline constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
inline constexpr uint64_t kMaxTensorNameBytes = 255;
inline constexpr uint64_t kMaxStringBytes = uint64_t{1} << 28;
inline constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
inline constexpr uint64_t kDefaultAlignment = 32;

inline constexpr std::string_view kAlignmentKey = "general.alignment";

// The writer holds itself to what the reader accepts.
[[nodiscard]] constexpr bool is_valid_alignment(uint64_t alignment) {
  return alignment != 0 && alignment <= kMaxAlignment && (std::has_single_bit(alignment) || alignment % 8 == 0);
}

struct GgufHead {
  uint32_t version = 0;
  std::vector<MetadataEntry> metadata;
  std::vector<uint32_t> keys_by_name;  // positions in metadata, sorted by key
  std::vector<GgufTensor> tensors;     // offsets from the start of the file; part is 0
};

[[nodiscard]] GgufHead parse_head(ByteReader& reader);

}  // namespace inferno
