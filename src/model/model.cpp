#include "model/model.h"

#include <string>

#include "base/error.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

class TensorSource final : public WeightSource {
 public:
  TensorSource(const ModelFile& file, const FileTensor& tensor, int32_t layer)
      : file_(file), tensor_(tensor), layer_(layer) {}
  [[nodiscard]] const std::string& name() const override { return tensor_.name; }
  [[nodiscard]] DType dtype() const override { return *tensor_.dtype; }
  [[nodiscard]] const Shape& shape() const override { return tensor_.shape; }
  [[nodiscard]] int32_t layer() const override { return layer_; }
  void read(uint64_t offset, std::span<std::byte> out) const override { file_.read_tensor(tensor_, out, offset); }

 private:
  const ModelFile& file_;
  const FileTensor& tensor_;
  int32_t layer_;
};

// Loads tensors by name, checking shape and type, and reports progress by bytes.
class Loader {
 public:
  Loader(Backend& backend, const ModelFile& file, const OnProgress& on_progress)
      : backend_(backend), file_(file), progress_(on_progress, file.file_bytes()) {}

  std::unique_ptr<Weight> operator()(std::string_view name, const Shape& shape, WeightUse uses,
                                     int32_t layer = kNoLayer) {
    const FileTensor& tensor = file_.get_tensor(name);
    if (tensor.shape != shape) {
      fail("\"{}\": tensor {} has shape {}, the model's sizes need {}", file_.path(), name, to_string(tensor.shape),
           to_string(shape));
    }
    if (!tensor.dtype || *tensor.dtype == DType::i32) {
      fail("\"{}\": tensor {} is stored as {}, which inferno cannot compute with (supported: {})", file_.path(), name,
           tensor.type_name, weight_dtype_names());
    }
    std::unique_ptr<Weight> weight = backend_.load_weight(TensorSource(file_, tensor, layer), uses);
    progress_.advance(tensor.bytes);
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
  for (const LayerTensor& tensor : layer_tensors(config.layers[static_cast<size_t>(index)], config.width)) {
    const WeightUse use = tensor.shape.rank == 1 ? WeightUse::vector : WeightUse::matmul;
    layer.*tensor.weight = load(layer_tensor_name(index, tensor.part), tensor.shape, use, index);
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
  embedding_ = load(kEmbeddingTensor, table, tied ? WeightUse::gather | WeightUse::matmul : WeightUse::gather);
  output_norm_ = load(kOutputNormTensor, Shape(c.width), WeightUse::vector);
  if (!tied) head_ = load(kHeadTensor, table, WeightUse::matmul);
  for (int32_t i = 0; i < c.layer_count(); ++i) layers_.push_back(load_layer(load, c, i));
  load.finish();
  weight_bytes_ = load.bytes();

  for (const RopeConfig& rope : c.ropes) {
    const std::vector<float> angles = rope_table(rope, context);
    rope_tables_.push_back(backend.allocate(angles.size() * sizeof(float)));
    backend.upload(rope_tables_.back().data(), angles.data(), angles.size() * sizeof(float));
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

}  // namespace inferno
