// Weights as they are read from a file: a whole tensor, or the rows and columns of it that are wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/weight.h"
#include "file/model_file.h"
#include "model/config.h"
#include "model/layer_weights.h"
#include "model/split.h"

namespace inferno {

// Which elements of a tensor a weight has. The tensor's rows come in blocks: the matrices of experts, or what several
// weights share row by row; a weight has the same rows of each of its blocks. A vector's rows are its elements.
struct Selection {
  std::string name;  // of the weight
  Shape shape;
  int32_t layer = kNoLayer;
  std::string tensor = name;
  Shape tensor_shape = shape;

  int64_t block_rows = 0;  // of the tensor
  int64_t first_block = 0;
  int64_t first_row = 0;  // of each block
  int64_t rows = 0;       // the same; 0: the whole tensor
  int64_t first_column = 0;

  [[nodiscard]] bool is_whole() const { return rows == 0; }
};

// A tensor as a weight of the same shape.
[[nodiscard]] Selection select_whole(std::string name, const Shape& shape);
// Rows of it.
[[nodiscard]] Selection select_rows(std::string name, const Shape& shape, const Part& rows);
// The share of a layer's weight; nothing where the rank has none of it. `layer` is that of the whole model.
[[nodiscard]] std::optional<Selection> select_share(const LayerTensor& tensor, int32_t index, const LayerConfig& layer,
                                                    const ModelShare& share);

// Bytes of all weights of a rank, as the file has them.
[[nodiscard]] uint64_t share_bytes(const ModelFile& file, const ModelConfig& whole, const ModelShare& share);
// The same of one layer; kNoLayer: of those outside of layers.
[[nodiscard]] uint64_t share_bytes(const ModelFile& file, const ModelConfig& whole, const ModelShare& share,
                                   int32_t layer);

class TensorSource final : public WeightSource {
 public:
  // All of them outlive the source; the tensor has a dtype.
  TensorSource(const ModelFile& file, const FileTensor& tensor, const Selection& wanted);

  [[nodiscard]] const std::string& name() const override { return wanted_.name; }
  [[nodiscard]] DType dtype() const override { return *tensor_.dtype; }
  [[nodiscard]] const Shape& shape() const override { return wanted_.shape; }
  [[nodiscard]] int32_t layer() const override { return wanted_.layer; }
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  const ModelFile& file_;
  const FileTensor& tensor_;
  const Selection& wanted_;
  uint64_t row_bytes_ = 0;       // of the weight
  uint64_t file_row_bytes_ = 0;  // of the tensor
  uint64_t column_offset_ = 0;
};

}  // namespace inferno
