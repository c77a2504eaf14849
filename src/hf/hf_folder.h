// A model as Hugging Face folders hold it: config.json, safetensors, tokenizer.json and what goes with them.
//
// The folder is translated into what a GGUF file of the model would say: its metadata keys, its tensor names and
// shapes, its vocabulary; everything behind ModelFile works unchanged. Tensor data stays on disk; read_tensor()
// computes what differs from the stored form (order of rows, stacked experts, norms with 1 added, FP8 by its scales)
// while it reads.
//
// Every file of it is untrusted: what is wrong with one is an Error of one line that names the file, and nothing is
// allocated beyond the size of the folder's files and a fixed allowance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"

namespace inferno {

class HfFolder final : public ModelFile {
 public:
  // Reads the small files and the heads of the safetensors files.
  [[nodiscard]] static HfFolder open(const std::string& path);
  ~HfFolder() override;
  HfFolder(HfFolder&& other) noexcept;
  HfFolder& operator=(HfFolder&& other) noexcept;
  HfFolder(const HfFolder&) = delete;
  HfFolder& operator=(const HfFolder&) = delete;

  [[nodiscard]] const std::string& path() const override;
  [[nodiscard]] std::vector<std::string> files() const override;  // those with tensors
  [[nodiscard]] uint64_t file_bytes() const override;

  [[nodiscard]] std::span<const MetadataEntry> metadata() const override;
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override;

  [[nodiscard]] size_t tensor_count() const override;
  [[nodiscard]] const FileTensor& tensor(size_t index) const override;
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override;
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const override;

 private:
  struct Contents;
  explicit HfFolder(std::unique_ptr<const Contents> contents);

  std::unique_ptr<const Contents> contents_;
};

}  // namespace inferno
