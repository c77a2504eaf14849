// A model file of either format: a GGUF file, or a Hugging Face folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "file/model_file.h"
#include "gguf/gguf.h"
#include "hf/hf_folder.h"

namespace inferno {

// References and views it gives out stay valid when it is moved.
class AnyModelFile final : public ModelFile {
 public:
  // A folder is a Hugging Face folder, everything else a GGUF file.
  [[nodiscard]] static AnyModelFile open(const std::string& path);
  explicit AnyModelFile(GgufFile file) : file_(std::move(file)) {}
  explicit AnyModelFile(HfFolder folder) : file_(std::move(folder)) {}

  // Null: it is a folder.
  [[nodiscard]] const GgufFile* gguf() const { return std::get_if<GgufFile>(&file_); }

  [[nodiscard]] const std::string& path() const override { return get().path(); }
  [[nodiscard]] std::vector<std::string> files() const override { return get().files(); }
  [[nodiscard]] uint64_t file_bytes() const override { return get().file_bytes(); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return get().metadata(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return get().find(key); }
  [[nodiscard]] size_t tensor_count() const override { return get().tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return get().tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override { return get().find_tensor(name); }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const override {
    get().read_tensor(tensor, out, begin);
  }

 private:
  [[nodiscard]] const ModelFile& get() const {
    return std::visit([](const auto& file) -> const ModelFile& { return file; }, file_);
  }

  std::variant<GgufFile, HfFolder> file_;
};

}  // namespace inferno
