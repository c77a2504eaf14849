// What is in a model file, as plain data: for people and programs that look before they load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"

namespace inferno {

struct TensorInfo {
  std::string name;
  std::string type;            // as the file's format calls it: "Q4_K"
  std::vector<int64_t> shape;  // outermost first
  uint64_t bytes = 0;
  bool computable = true;  // false: inferno cannot compute with the type
};

struct MetadataInfo {
  std::string key;
  std::string type;   // "u32", "array of string"
  std::string value;  // one line of about 80 bytes, safe for terminals
};

struct TensorTypeTotal {
  std::string type;
  size_t tensors = 0;
  uint64_t bytes = 0;
};
// Adds a tensor to the total of its type; the totals stay in order, largest first.
void count_tensor(std::string_view type, uint64_t bytes, std::vector<TensorTypeTotal>& totals);

struct ModelInfo {
  std::string path;
  uint64_t file_bytes = 0;
  std::string architecture;  // empty: the file does not say
  std::string name;
  std::string unsupported;  // why inferno cannot run it, one line; empty: it can, as far as the metadata shows

  uint64_t parameters = 0;     // elements of all tensors
  double bits_per_weight = 0;  // of the tensors' data

  // Zero in a model that inferno does not support.
  int32_t layers = 0;
  int32_t width = 0;
  int32_t heads = 0;  // of the first layer, as the next two
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;  // of the widest layer
  int32_t context = 0;
  int32_t vocabulary = 0;

  std::vector<MetadataInfo> metadata;  // in file order, as the tensors
  std::vector<TensorInfo> tensors;
  std::vector<TensorTypeTotal> types;  // largest first
};

// Reads no tensor data. A file that inferno cannot run is no Error here.
[[nodiscard]] ModelInfo inspect_model(const ModelFile& file);

}  // namespace inferno
