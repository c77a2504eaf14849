// Reader of GGUF files, versions 2 and 3, whole or split into parts.
//
// A file is untrusted input: open() checks every count, length and offset before using it, allocates no more than the
// file's own size and a fixed allowance, and reads only the head of the file; tensor data stays on disk until
// read_tensor. Whatever is wrong with a file is an Error that names the file and what is wrong in it. After open()
// every tensor is known to be inside its file, aligned and apart from all others; names and keys are unique,
// non-empty UTF-8 (string *values* may hold any bytes).
//
// References and views it gives out stay valid when it is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "file/model_file.h"
#include "gguf/ggml_types.h"

namespace inferno {

struct GgufTensor final : FileTensor {  // its shape is the file's dimensions reversed
  const GgmlType* type = nullptr;       // never null; type->id is the number in the file
  size_t part = 0;                      // which file of a split model
  uint64_t offset = 0;                  // from the start of that file
};

class GgufFile final : public ModelFile {
 public:
  // Opening any part of a split model (NAME-00001-of-00003.gguf) opens all of them.
  [[nodiscard]] static GgufFile open(const std::string& path);
  // The bytes are not copied and must outlive the object; `name` is the path in messages.
  [[nodiscard]] static GgufFile from_memory(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint32_t version() const { return version_; }
  [[nodiscard]] size_t part_count() const { return sources_.size(); }
  [[nodiscard]] const std::string& part_path(size_t part) const;
  [[nodiscard]] std::vector<std::string> files() const override;  // all parts
  [[nodiscard]] uint64_t file_bytes() const override;             // of all parts

  // Metadata in file order; of a split model, the first part's.
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return metadata_; }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override;

  // Tensors in file order, part after part.
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  [[nodiscard]] size_t tensor_count() const override { return tensors_.size(); }
  [[nodiscard]] const GgufTensor& tensor(size_t index) const override { return tensors_[index]; }
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const override;

  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const override;
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

  std::string path_;
  uint32_t version_ = 0;
  std::vector<Source> sources_;
  std::vector<MetadataEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  // Positions in metadata_ and tensors_, sorted by name. Binary search: no hash for a hostile file to attack.
  std::vector<uint32_t> keys_by_name_;
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace inferno
