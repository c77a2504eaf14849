// Reader of GGUF files, versions 2 and 3, whole or split into parts.
//
// A file is untrusted input: open() checks every count, length and offset before using it, allocates no more than the
// file's own size and a fixed allowance, and reads only the head of the file; tensor data stays on disk until
// read_tensor. Whatever is wrong with a file is an Error that names the file and what is wrong in it. After open()
// every tensor is known to lie inside its file, aligned and apart from all others; names and keys are unique,
// non-empty UTF-8 (string *values* may hold any bytes).
//
// A GgufFile is immutable and may be used from several threads at once. References and views it hands out live as long
// as it does, also when it is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "gguf/ggml_types.h"
#include "gguf/value.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace inferno {

struct GgufMetadata {
  std::string key;
  GgufValue value;
};

struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;  // never null; type->id is the number in the file
  std::optional<DType> dtype;      // empty: inferno can list this type but not compute with it
  Shape shape;                     // outermost first: the file's dimensions reversed; all are at least 1
  size_t part = 0;                 // which file of a split model
  uint64_t offset = 0;             // from the start of that file
  uint64_t bytes = 0;
};

class GgufFile {
 public:
  // Opening any part of a split model (NAME-00001-of-00003.gguf) opens all of them.
  [[nodiscard]] static GgufFile open(const std::string& path);
  // The bytes are not copied and must outlive the object; `name` stands for the path in messages.
  [[nodiscard]] static GgufFile from_memory(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint32_t version() const { return version_; }
  [[nodiscard]] size_t part_count() const { return sources_.size(); }
  [[nodiscard]] const std::string& part_path(size_t part) const;
  [[nodiscard]] uint64_t file_bytes() const;  // of all parts

  // Metadata in file order; of a split model, the first part's.
  [[nodiscard]] std::span<const GgufMetadata> metadata() const { return metadata_; }
  [[nodiscard]] const GgufValue* find(std::string_view key) const;

  // find_*: empty (null) when the key is missing. get_*: a missing key is an Error. A value of another type is an
  // Error in both, naming the key and both types. Integers may be stored as any integer type, floats as f32 or f64.
  [[nodiscard]] const std::string* find_string(std::string_view key) const;
  [[nodiscard]] std::optional<uint64_t> find_uint(std::string_view key) const;  // a negative value is an Error
  [[nodiscard]] std::optional<int64_t> find_int(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_float(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
  [[nodiscard]] const GgufStrings* find_strings(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> find_ints(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<float>> find_floats(std::string_view key) const;

  [[nodiscard]] const std::string& get_string(std::string_view key) const;
  [[nodiscard]] uint64_t get_uint(std::string_view key) const;
  [[nodiscard]] int64_t get_int(std::string_view key) const;
  [[nodiscard]] double get_float(std::string_view key) const;
  [[nodiscard]] bool get_bool(std::string_view key) const;
  [[nodiscard]] const GgufStrings& get_strings(std::string_view key) const;
  [[nodiscard]] std::vector<int64_t> get_ints(std::string_view key) const;
  [[nodiscard]] std::vector<float> get_floats(std::string_view key) const;

  // Tensors in file order, part after part.
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;
  [[nodiscard]] const GgufTensor& get_tensor(std::string_view name) const;  // a missing tensor is an Error
  // Tensor count and bytes per type, largest first.
  struct TypeTotal {
    const GgmlType* type = nullptr;
    size_t tensors = 0;
    uint64_t bytes = 0;
  };
  [[nodiscard]] std::vector<TypeTotal> totals_by_type() const;

  // Fills `out` with the tensor's bytes from `begin` on; [begin, begin + out.size()) must lie inside the tensor.
  void read_tensor(const GgufTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const;
  // Tells the kernel that the tensor's bytes will not be read again.
  void forget_tensor(const GgufTensor& tensor) const noexcept;
  // The tensor's bytes in place when the file is in memory, else empty.
  [[nodiscard]] std::span<const std::byte> view_tensor(const GgufTensor& tensor) const;

 private:
  struct MemoryFile {
    std::string name;
    std::span<const std::byte> bytes;
  };
  using Source = std::variant<InputFile, MemoryFile>;

  struct Part;

  GgufFile() = default;
  [[nodiscard]] static Part load_part(Source source);
  // Appends the part's tensors; the first part also gives the metadata.
  void add_part(Part part);
  void add_split_parts(Part opened, uint64_t count);
  void sort_tensor_names();
  void require(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected, const GgufValue& value) const;

  std::string path_;
  uint32_t version_ = 0;
  std::vector<Source> sources_;
  std::vector<GgufMetadata> metadata_;
  std::vector<GgufTensor> tensors_;
  // Positions in metadata_ and tensors_, sorted by name. Binary search: no hash for a hostile file to attack.
  std::vector<uint32_t> keys_by_name_;
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace inferno
