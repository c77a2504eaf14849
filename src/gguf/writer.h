// Writer of GGUF version 3 files.
//
// Use: set() metadata and add_tensor() in any order, then write_data() with the bytes of all tensors in the order they
// were added (in pieces of any size; padding between tensors is the writer's business), then finish(). Nothing appears
// under `path` before finish(): the data goes to a temporary file that is synced and renamed. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "file/metadata.h"
#include "gguf/ggml_types.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace inferno {

class GgufWriter {
 public:
  explicit GgufWriter(const std::string& path);

  // A key may be set once; "general.alignment" (u32) also sets the alignment of the tensor data (default 32).
  void set(const std::string& key, const MetadataValue& value);
  // `shape` outermost first; its last dimension must be a multiple of the type's block size.
  void add_tensor(const std::string& name, DType dtype, const Shape& shape);
  void add_tensor(const std::string& name, const GgmlType& type, const Shape& shape);

  void write_data(std::span<const std::byte> bytes);
  // Instead: all of it is zeros that take no space, for who reads sizes alone.
  void skip_data();
  // Every tensor's data must have been written. Returns the size of the file.
  uint64_t finish();

 private:
  struct Entry {
    std::string name;
    const GgmlType* type;
    Shape shape;
    uint64_t bytes;
  };
  void write_head();
  void write_padding();

  std::string path_;
  AtomicOutputFile file_;
  std::string metadata_;  // encoded
  std::vector<Entry> tensors_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  uint64_t alignment_;
  bool head_written_ = false;
  size_t current_ = 0;         // the tensor being written
  uint64_t current_done_ = 0;  // its bytes so far
};

}  // namespace inferno
