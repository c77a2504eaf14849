#include "model/model.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "model/tensor_names.h"
#include "model/tensor_source.h"

namespace inferno {
namespace {

// A file may call a vector a matrix of one row.
Shape without_one_row(const Shape& shape) {
  return shape.rank == 2 && shape[0] == 1 ? Shape(shape[1]) : shape;
}

// Loads tensors by name, checking shape and type, and reports progress by bytes.
class Loader {
 public:
  Loader(Backend& backend, const ModelFile& file, const OnProgress& on_progress)
      : backend_(backend), file_(file), progress_(on_progress, file.file_bytes()) {}

  std::unique_ptr<Weight> operator()(const Selection& wanted, WeightUse uses) {
    const FileTensor& tensor = file_.get_tensor(wanted.tensor);
    if (without_one_row(tensor.shape) != without_one_row(wanted.tensor_shape)) {
      fail("\"{}\": tensor {} has shape {}, the model's sizes need {}", file_.path(), wanted.tensor,
           to_string(tensor.shape), to_string(wanted.tensor_shape));
    }
    if (!tensor.dtype || *tensor.dtype == DType::i32) {
      fail("\"{}\": tensor {} is stored as {}, which inferno cannot compute with (supported: {})", file_.path(),
           wanted.tensor, tensor.type_name, weight_dtype_names());
    }
    if (wanted.shape.rank == 1 && !wanted.is_whole() && is_quantized(*tensor.dtype)) {
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

LayerWeights load_layer(Loader& load, const ModelConfig& config, int32_t index, const ModelShare& share) {
  LayerWeights weights;
  const LayerConfig& layer = config.layers[static_cast<size_t>(index)];
  for (const LayerTensor& tensor : layer_tensors(config, index)) {
    const WeightUse use = tensor.shape.rank == 1 ? WeightUse::vector : WeightUse::matmul;
    const std::optional<Selection> wanted = select_share(tensor, index, layer, share);
    if (wanted) weights.*tensor.weight = load(*wanted, use);
  }
  return weights;
}

EncoderWeights load_encoder(Loader& load, const ModelFile& file, const ModelConfig& c) {
  const EncoderConfig& e = c.encoder;
  const auto vector = [&](const char* name, int64_t n) {
    return load(select_whole(name, Shape(n)), WeightUse::vector);
  };
  const auto bias = [&](const char* name, int64_t n) {
    return file.find_tensor(name) == nullptr ? nullptr : vector(name, n);
  };
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols, WeightUse use) {
    return rows == 0 ? nullptr : load(select_whole(name, Shape(rows, cols)), use);
  };
  EncoderWeights w;
  if (e.positions) w.positions = matrix("position_embd.weight", c.context, c.width, WeightUse::gather);
  w.types = matrix("token_types.weight", e.types, c.width, WeightUse::gather);
  if (e.embedding_norm) {
    w.embedding_norm = vector("token_embd_norm.weight", c.width);
    w.embedding_bias = bias("token_embd_norm.bias", c.width);
  }
  w.dense[0] = matrix("dense_2.weight", e.dense[0], c.width, WeightUse::matmul);
  w.dense[1] = matrix("dense_3.weight", e.dense[1], e.dense[0], WeightUse::matmul);
  if (e.class_layer) {
    w.class_layer = matrix("cls.weight", c.width, c.width, WeightUse::matmul);
    w.class_layer_bias = bias("cls.bias", c.width);
  }
  if (e.classes > 0) {
    w.classes = matrix("cls.output.weight", e.classes, c.width, WeightUse::matmul);
    w.classes_bias = bias("cls.output.bias", e.classes);
  }
  return w;
}

}  // namespace

Model::Model(Backend& backend, const ModelFile& file, const ModelConfig& config, int32_t context,
             const OnProgress& on_progress, std::optional<ModelShare> share)
    : share_(share ? std::move(*share) : whole_share(config)), config_(config_of(config, share_)), context_(context) {
  Loader load(backend, file, on_progress);
  const ModelConfig& c = config_;
  const bool tied = !c.encoder.only && file.find_tensor(kHeadTensor) == nullptr;
  if (share_.has_ends()) {
    const Shape table(c.vocabulary, c.width);
    embedding_ = load(select_rows(std::string(kEmbeddingTensor), table, share_.vocabulary),
                      tied ? WeightUse::gather | WeightUse::matmul : WeightUse::gather);
    if (c.encoder.output_norm) {
      output_norm_ = load(select_whole(std::string(c.output_norm_tensor), Shape(c.width)), WeightUse::vector);
    }
    encoder_ = load_encoder(load, file, c);
    if (!tied && !c.encoder.only)
      head_ = load(select_rows(std::string(kHeadTensor), table, share_.vocabulary), WeightUse::matmul);
  }
  if (c.layer_inputs > 0) {
    const int64_t all = int64_t{c.layer_inputs} * c.layer_count();
    inputs_.table = load(select_whole(std::string(kLayerInputTable), Shape(c.vocabulary, all)), WeightUse::gather);
    inputs_.proj = load(select_whole(std::string(kLayerInputProjection), Shape(all, c.width)), WeightUse::matmul);
    inputs_.norm = load(select_whole(std::string(kLayerInputNorm), Shape(c.layer_inputs)), WeightUse::vector);
  }
  for (int32_t i = 0; i < c.layer_count(); ++i) {
    layers_.push_back(share_.has_layer(i) ? load_layer(load, config, i, share_) : LayerWeights());
  }
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
