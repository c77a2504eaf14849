// Reader of safetensors files: a length, a JSON header that places every tensor, then their bytes.
//
// Files are untrusted. After open() every tensor is known to be inside its file, as long as its shape says, and apart
// from all others; names are unique, also across shards. Offsets need no alignment: bytes are copied when read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace inferno::hf {

enum class StoredType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  u8,
  i8,
  boolean,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64
};

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  uint8_t rank = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // outermost first; of a higher rank the first four
  uint32_t file = 0;                           // which shard
  uint64_t offset = 0;                         // from the start of that file
  uint64_t bytes = 0;

  [[nodiscard]] int64_t elements() const;  // rank at most 4
};

[[nodiscard]] std::string_view stored_type_name(StoredType type);  // "BF16"
[[nodiscard]] int64_t stored_type_bytes(StoredType type);

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxStoredTensors = size_t{1} << 18;
inline constexpr size_t kMaxShards = 1000;

// The tensors that a header places in a file of `file_bytes` bytes, in order of their offsets. `name` is the file in
// messages.
[[nodiscard]] std::vector<StoredTensor> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                                 const std::string& name);

class Safetensors {
 public:
  // model.safetensors, or all shards that model.safetensors.index.json names.
  [[nodiscard]] static Safetensors open_folder(const std::string& folder);

  [[nodiscard]] std::span<const StoredTensor> tensors() const { return tensors_; }  // shard after shard
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;              // null: there is none
  [[nodiscard]] std::vector<std::string> files() const;
  [[nodiscard]] uint64_t file_bytes() const;
  // Bytes [begin, begin + out.size()) of a tensor.
  void read(const StoredTensor& tensor, uint64_t begin, std::span<std::byte> out) const;

 private:
  void add_file(const std::string& path);
  void sort_names(const std::string& folder);

  std::vector<InputFile> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<uint32_t> by_name_;  // positions in tensors_
};

}  // namespace inferno::hf
