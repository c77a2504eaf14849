#include "model/model.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// What a weight is loaded from: a tensor, or rows of it from `first_row` on; of several matrices, or blocks of rows,
// those of each.
struct Wanted {
  std::string name;  // of the weight
  Shape shape;
  int32_t layer = kNoLayer;
  std::string tensor = name;
  Shape tensor_shape = shape;
  int64_t first_row = 0;
  int64_t blocks = 1;
};

// A file may call a vector a matrix of one row.
Shape without_one_row(const Shape& shape) {
  return shape.rank == 2 && shape[0] == 1 ? Shape(shape[1]) : shape;
}

// Rows of a matrix; a vector's rows are its elements.
int64_t matrix_rows(const Shape& shape) {
  return shape.rank == 3 ? shape[1] : shape[0];
}

class TensorSource final : public WeightSource {
 public:
  TensorSource(const ModelFile& file, const FileTensor& tensor, const Wanted& wanted)
      : file_(file), tensor_(tensor), wanted_(wanted) {
    if (wanted.tensor_shape == wanted.shape) return;  // all of it
    const int64_t cols = tensor.shape.rank == 1 ? 1 : tensor.shape.cols();
    const auto bytes = [&](int64_t rows) { return static_cast<uint64_t>(rows * row_bytes(*tensor.dtype, cols)); };
    begin_ = wanted.first_row == 0 ? 0 : bytes(wanted.first_row);
    if (tensor.shape.rank < 3 && wanted.blocks == 1) return;
    matrix_bytes_ = bytes(matrix_rows(wanted.shape) / wanted.blocks);
    file_matrix_bytes_ = bytes(matrix_rows(tensor.shape) / wanted.blocks);
  }
  [[nodiscard]] const std::string& name() const override { return wanted_.name; }
  [[nodiscard]] DType dtype() const override { return *tensor_.dtype; }
  [[nodiscard]] const Shape& shape() const override { return wanted_.shape; }
  [[nodiscard]] int32_t layer() const override { return wanted_.layer; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (matrix_bytes_ == 0) {
      file_.read_tensor(tensor_, out, begin_ + offset);
      return;
    }
    while (!out.empty()) {
      const uint64_t in_matrix = offset % matrix_bytes_;
      const auto part = static_cast<size_t>(std::min<uint64_t>(matrix_bytes_ - in_matrix, out.size()));
      file_.read_tensor(tensor_, out.first(part), offset / matrix_bytes_ * file_matrix_bytes_ + begin_ + in_matrix);
      out = out.subspan(part);
      offset += part;
    }
  }

 private:
  const ModelFile& file_;
  const FileTensor& tensor_;
  const Wanted& wanted_;
  uint64_t begin_ = 0;
  // Where rows of several matrices or blocks are wanted: those of one, and one whole of the file. Else 0.
  uint64_t matrix_bytes_ = 0, file_matrix_bytes_ = 0;
};

// Loads tensors by name, checking shape and type, and reports progress by bytes.
class Loader {
 public:
  Loader(Backend& backend, const ModelFile& file, const OnProgress& on_progress)
      : backend_(backend), file_(file), progress_(on_progress, file.file_bytes()) {}

  std::unique_ptr<Weight> operator()(const Wanted& wanted, WeightUse uses) {
    const FileTensor& tensor = file_.get_tensor(wanted.tensor);
    if (without_one_row(tensor.shape) != without_one_row(wanted.tensor_shape)) {
      fail("\"{}\": tensor {} has shape {}, the model's sizes need {}", file_.path(), wanted.tensor,
           to_string(tensor.shape), to_string(wanted.tensor_shape));
    }
    if (!tensor.dtype || *tensor.dtype == DType::i32) {
      fail("\"{}\": tensor {} is stored as {}, which inferno cannot compute with (supported: {})", file_.path(),
           wanted.tensor, tensor.type_name, weight_dtype_names());
    }
    if (wanted.shape.rank == 1 && wanted.tensor != wanted.name && is_quantized(*tensor.dtype)) {
      fail("\"{}\": tensor {} is stored as {} and cannot be split", file_.path(), wanted.tensor, tensor.type_name);
    }
    std::unique_ptr<Weight> weight = backend_.load_weight(TensorSource(file_, tensor, wanted), uses);
    progress_.advance(static_cast<uint64_t>(weight->rows() * row_bytes(weight->dtype(), weight->cols())));
    bytes_ += weight->bytes();
    return weight;
  }
  // The rest of the file is no weight of this model.
  void finish() { progress_.finish(); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  const ModelFile& file_;
  ProgressCounter progress_;
  uint64_t bytes_ = 0;
};

LayerWeights load_layer(Loader& load, const ModelConfig& config, int32_t index) {
  LayerWeights layer;
  for (const LayerTensor& tensor : layer_tensors(config, index)) {
    const WeightUse use = tensor.shape.rank == 1 ? WeightUse::vector : WeightUse::matmul;
    Wanted wanted{.name = layer_tensor_name(index, tensor.part), .shape = tensor.shape, .layer = index};
    if (!tensor.fused_part.empty()) {
      wanted.tensor = layer_tensor_name(index, tensor.fused_part);
      wanted.tensor_shape.dims[tensor.shape.rank == 3 ? 1 : 0] = tensor.fused_rows * tensor.blocks;
      wanted.first_row = tensor.first_row;
      wanted.blocks = tensor.blocks;
    }
    if (tensor.file_shape.rank > 0) wanted.tensor_shape = tensor.file_shape;
    layer.*tensor.weight = load(wanted, use);
  }
  return layer;
}

}  // namespace

Model::Model(Backend& backend, const ModelFile& file, ModelConfig config, int32_t context,
             const OnProgress& on_progress)
    : config_(std::move(config)), context_(context) {
  Loader load(backend, file, on_progress);
  const ModelConfig& c = config_;
  const bool tied = file.find_tensor(kHeadTensor) == nullptr;
  const Shape table(c.vocabulary, c.width);
  embedding_ = load({.name = std::string(kEmbeddingTensor), .shape = table},
                    tied ? WeightUse::gather | WeightUse::matmul : WeightUse::gather);
  output_norm_ = load({.name = std::string(c.output_norm_tensor), .shape = Shape(c.width)}, WeightUse::vector);
  if (!tied) head_ = load({.name = std::string(kHeadTensor), .shape = table}, WeightUse::matmul);
  if (c.layer_inputs > 0) {
    const int64_t all = int64_t{c.layer_inputs} * c.layer_count();
    inputs_.table = load({.name = std::string(kLayerInputTable), .shape = Shape(c.vocabulary, all)}, WeightUse::gather);
    inputs_.proj = load({.name = std::string(kLayerInputProjection), .shape = Shape(all, c.width)}, WeightUse::matmul);
    inputs_.norm = load({.name = std::string(kLayerInputNorm), .shape = Shape(c.layer_inputs)}, WeightUse::vector);
  }
  for (int32_t i = 0; i < c.layer_count(); ++i) layers_.push_back(load_layer(load, c, i));
  load.finish();
  weight_bytes_ = load.bytes();

  const auto upload = [&](const std::vector<float>& angles) {
    Buffer table_memory = backend.allocate(angles.size() * sizeof(float));
    backend.upload(table_memory.data(), angles.data(), angles.size() * sizeof(float));
    return table_memory;
  };
  for (const RopeConfig& rope : c.ropes) {
    rope_tables_.push_back(upload(rope_table(rope, context)));
    query_rope_tables_.push_back(rope.temperature == 0 ? Buffer() : upload(query_rope_table(rope, context)));
  }
}

RopeParams Model::rope(int32_t layer) const {
  const int32_t index = config_.layers[static_cast<size_t>(layer)].rope;
  if (index == kNoRope) return {};
  const RopeConfig& rope = config_.ropes[static_cast<size_t>(index)];
  return {.table = {rope_tables_[static_cast<size_t>(index)].data(), Shape(context_, rope.rotated_dims / 2, 2)},
          .rotated_dims = rope.rotated_dims,
          .pairing = rope.pairing};
}

Tensor Model::query_rope(int32_t layer) const {
  const int32_t index = config_.layers[static_cast<size_t>(layer)].rope;
  if (index == kNoRope || config_.ropes[static_cast<size_t>(index)].temperature == 0) return {};
  Tensor table = rope(layer).table;
  table.data = query_rope_tables_[static_cast<size_t>(index)].data();
  return table;
}

}  // namespace inferno
