// What a model needs of a file, whatever the file's format: metadata by key, tensors by name, a vocabulary.
//
// Keys and tensor names are GGUF's ("qwen3.block_count", "blk.0.attn_q.weight"); a file of another format translates
// its own into them. Files are untrusted: whatever is wrong with one is an Error that names the file and what is wrong.
//
// A ModelFile is immutable and may be used from several threads at once. References it gives out live as long as it
// does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file/metadata.h"
#include "file/vocabulary.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace inferno {

struct FileTensor {
  std::string name;
  std::string_view type_name;  // as the file's format calls the type
  std::optional<DType> dtype;  // empty: inferno cannot compute with this type
  Shape shape;                 // outermost first; every dimension is at least 1
  uint64_t bytes = 0;
};

class ModelFile {
 public:
  virtual ~ModelFile() = default;

  // What messages call the file.
  [[nodiscard]] virtual const std::string& path() const = 0;
  // The files that hold its tensors.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {path()}; }
  [[nodiscard]] virtual uint64_t file_bytes() const = 0;

  // ---- metadata. find_*: empty (null) when the key is missing. get_*: a missing key is an Error. A value of another
  // type is an Error in both, naming the key and both types. Integers may be stored as any integer type, floats as f32
  // or f64.
  [[nodiscard]] virtual const MetadataValue* find(std::string_view key) const = 0;
  [[nodiscard]] virtual std::span<const MetadataEntry> metadata() const = 0;  // all of it, in file order
  [[nodiscard]] bool is_array(std::string_view key) const;                    // false when the key is missing
  [[nodiscard]] const std::string* find_string(std::string_view key) const;
  [[nodiscard]] std::optional<uint64_t> find_uint(std::string_view key) const;  // a negative value is an Error
  [[nodiscard]] std::optional<int64_t> find_int(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_float(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
  [[nodiscard]] const StringList* find_strings(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> find_ints(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<float>> find_floats(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<bool>> find_bools(std::string_view key) const;

  [[nodiscard]] const std::string& get_string(std::string_view key) const;
  [[nodiscard]] uint64_t get_uint(std::string_view key) const;
  [[nodiscard]] int64_t get_int(std::string_view key) const;
  [[nodiscard]] double get_float(std::string_view key) const;
  [[nodiscard]] bool get_bool(std::string_view key) const;
  [[nodiscard]] const StringList& get_strings(std::string_view key) const;
  [[nodiscard]] std::vector<int64_t> get_ints(std::string_view key) const;
  [[nodiscard]] std::vector<float> get_floats(std::string_view key) const;

  // ---- tensors
  [[nodiscard]] virtual size_t tensor_count() const = 0;
  [[nodiscard]] virtual const FileTensor& tensor(size_t index) const = 0;
  [[nodiscard]] virtual const FileTensor* find_tensor(std::string_view name) const = 0;  // null: there is none
  [[nodiscard]] const FileTensor& get_tensor(std::string_view name) const;               // a missing one is an Error
  // Fills `out` with the bytes of one of this file's tensors from `begin` on; [begin, begin + out.size()) must be
  // inside the tensor.
  virtual void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const = 0;

  // ---- vocabulary: by default what the tokenizer.* keys say (load_vocabulary). A file without one is an Error.
  [[nodiscard]] virtual bool has_vocabulary() const;
  [[nodiscard]] virtual Vocabulary vocabulary() const;

 protected:
  ModelFile() = default;
  ModelFile(const ModelFile&) = default;
  ModelFile& operator=(const ModelFile&) = default;
  ModelFile(ModelFile&&) = default;
  ModelFile& operator=(ModelFile&&) = default;

 private:
  void require(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected, const MetadataValue& value) const;
  // The items when the value is an array of exactly this type, else null.
  template <typename Items>
  [[nodiscard]] static const Items* items_of(const MetadataValue& value);
};

}  // namespace inferno
