// A model of random weights that needs no file: of any shape and types, the same for the same seed.
//
// It has the metadata, tensors and a vocabulary as a file of that model would have them; writing all of it down makes
// that file (tools/make_bench_model). Weights are generated when they are read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file/model_file.h"
#include "synthetic/model_shapes.h"
#include "synthetic/random_weight.h"

namespace inferno {

class SyntheticModel final : public ModelFile {
 public:
  // `type` is one of weight_type_names(). `changes` replace or extend the metadata that follows from the shape, an
  // array of sizes per layer for example; the tensors fit what the metadata then says.
  SyntheticModel(const ModelShape& shape, std::string_view type, uint64_t seed = 1,
                 const std::vector<MetadataEntry>& changes = {});
  SyntheticModel(const SyntheticModel&) = delete;
  SyntheticModel& operator=(const SyntheticModel&) = delete;

  [[nodiscard]] const std::string& path() const override { return name_; }
  [[nodiscard]] uint64_t file_bytes() const override { return bytes_; }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return metadata_; }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override;
  [[nodiscard]] size_t tensor_count() const override { return tensors_.size(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return tensors_[index]; }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override;
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin = 0) const override;

 private:
  enum class Kind : uint8_t { matrix, norm, bias, decay, rope_factors };
  struct RandomTensor final : FileTensor {
    Kind kind = Kind::matrix;
    uint64_t seed = 0;
    const BlockPool* pool = nullptr;  // of a matrix
  };

  void set(const std::string& key, MetadataValue value);
  void set_config(std::string_view type);
  void set_vocabulary();
  void add_tensors(std::string_view type);
  [[nodiscard]] static Kind kind_of(std::string_view part);  // of a vector
  void add_vector(std::string name, const Shape& shape, Kind kind);
  void add_matrix(std::string name, const Shape& shape, DType dtype);
  void add(RandomTensor tensor);
  [[nodiscard]] std::vector<float> vector_values(const RandomTensor& tensor) const;

  ModelShape shape_;
  uint64_t seed_;
  std::string name_;
  std::vector<MetadataEntry> metadata_;
  std::vector<RandomTensor> tensors_;
  std::map<std::pair<DType, int64_t>, BlockPool> pools_;  // by type and row length
  uint64_t bytes_ = 0;
};

}  // namespace inferno
