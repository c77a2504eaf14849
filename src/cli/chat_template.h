// --chat-template: a template for models whose files have none, or another one than theirs.
#pragma once

#include <string>

#include "file/model_file.h"

namespace inferno::cli {

// A known name stays a name; anything else is a file, and its text is returned. Neither is a usage Error.
[[nodiscard]] std::string read_chat_template(const std::string& name_or_file);

// A file with another chat template: `name_or_text` is what read_chat_template() returns. `file` outlives it.
class FileWithTemplate final : public ModelFile {
 public:
  FileWithTemplate(const ModelFile& file, const std::string& name_or_text);

  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] uint64_t file_bytes() const override { return file_.file_bytes(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return file_.find(key); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return file_.metadata(); }
  [[nodiscard]] size_t tensor_count() const override { return file_.tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return file_.tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override { return file_.find_tensor(name); }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
    file_.read_tensor(tensor, out, begin);
  }
  [[nodiscard]] bool has_vocabulary() const override { return file_.has_vocabulary(); }
  [[nodiscard]] Vocabulary vocabulary() const override;

 private:
  const ModelFile& file_;
  std::string source_;
};

}  // namespace inferno::cli
