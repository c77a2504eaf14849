#include "model/model.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/progress.h"
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

// Loads tensors by name, checking shape and type, and shows progress by bytes.
class Loader {
 public:
  Loader(Backend& backend, const ModelFile& file, bool quiet)
      : backend_(backend), file_(file), progress_("loading", file.file_bytes(), quiet) {}

  std::unique_ptr<Weight> operator()(const std::string& name, const Shape& shape, WeightUse uses,
                                     int32_t layer = kNoLayer) {
    const FileTensor& tensor = file_.get_tensor(name);
    if (tensor.shape != shape) {
      fail("\"{}\": tensor {} has shape {}, the model's sizes ask for {}", file_.path(), name, to_string(tensor.shape),
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
  [[nodiscard]] bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  const ModelFile& file_;
  Progress progress_;
  uint64_t bytes_ = 0;
};

LayerWeights load_layer(Loader& load, const ModelConfig& c, int32_t index) {
  const int64_t q_rows = int64_t{c.q_heads} * c.head_dim;
  const int64_t kv_rows = int64_t{c.kv_heads} * c.head_dim;
  const auto vector = [&](const char* name, int64_t n) {
    return load(layer_tensor_name(index, name), Shape(n), WeightUse::vector, index);
  };
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    return load(layer_tensor_name(index, name), Shape(rows, cols), WeightUse::matmul, index);
  };
  LayerWeights layer;
  layer.attn_norm = vector("attn_norm.weight", c.width);
  layer.wq = matrix("attn_q.weight", q_rows, c.width);
  layer.wk = matrix("attn_k.weight", kv_rows, c.width);
  layer.wv = matrix("attn_v.weight", kv_rows, c.width);
  if (c.qkv_bias) {
    layer.bq = vector("attn_q.bias", q_rows);
    layer.bk = vector("attn_k.bias", kv_rows);
    layer.bv = vector("attn_v.bias", kv_rows);
  }
  if (c.qk_norm) {
    layer.q_norm = vector("attn_q_norm.weight", c.head_dim);
    layer.k_norm = vector("attn_k_norm.weight", c.head_dim);
  }
  layer.wo = matrix("attn_output.weight", c.width, q_rows);
  layer.ffn_norm = vector("ffn_norm.weight", c.width);
  layer.gate = matrix("ffn_gate.weight", c.ffn, c.width);
  layer.up = matrix("ffn_up.weight", c.ffn, c.width);
  layer.down = matrix("ffn_down.weight", c.width, c.ffn);
  return layer;
}

// Llama 3's factors that divide the rotation frequencies; all 1 when the file has none.
std::vector<float> frequency_factors(const ModelFile& file, const ModelConfig& config) {
  const auto pairs = static_cast<size_t>(config.rotated_dims / 2);
  std::vector<float> factors(pairs, 1.0F);
  const FileTensor* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return factors;
  if (tensor->dtype != DType::f32 || tensor->shape.elements() != static_cast<int64_t>(pairs)) {
    fail("\"{}\": rope_freqs.weight must be {} values of type F32", file.path(), pairs);
  }
  file.read_tensor(*tensor, std::as_writable_bytes(std::span(factors)));
  for (const float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor)) fail("\"{}\": rope_freqs.weight holds {}", file.path(), factor);
  }
  return factors;
}

// [context, pairs, 2] of (cos, sin), computed in double: an angle of thousands of radians keeps few digits in float.
std::vector<float> rotation_table(const ModelConfig& config, const std::vector<float>& factors, int32_t context) {
  const size_t pairs = factors.size();
  std::vector<float> table(static_cast<size_t>(context) * pairs * 2);
  for (size_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / config.rotated_dims;
    const double frequency = std::pow(config.rope_base, exponent) / factors[i] * config.rope_position_scale;
    for (size_t p = 0; p < static_cast<size_t>(context); ++p) {
      const double angle = static_cast<double>(p) * frequency;
      table[(p * pairs + i) * 2] = static_cast<float>(std::cos(angle));
      table[(p * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace

Model::Model(Backend& backend, const ModelFile& file, ModelConfig config, int32_t context, bool quiet)
    : config_(std::move(config)), context_(context) {
  Loader load(backend, file, quiet);
  const ModelConfig& c = config_;
  const bool tied = !load.has("output.weight");
  embedding_ = load("token_embd.weight", Shape(c.vocabulary, c.width),
                    tied ? WeightUse::gather | WeightUse::matmul : WeightUse::gather);
  output_norm_ = load("output_norm.weight", Shape(c.width), WeightUse::vector);
  if (!tied) head_ = load("output.weight", Shape(c.vocabulary, c.width), WeightUse::matmul);
  for (int32_t i = 0; i < c.layers; ++i) layers_.push_back(load_layer(load, c, i));
  weight_bytes_ = load.bytes();

  const std::vector<float> table = rotation_table(c, frequency_factors(file, c), context);
  rope_table_ = backend.allocate(table.size() * sizeof(float));
  backend.upload(rope_table_.data(), table.data(), table.size() * sizeof(float));
  rope_ = {.table = {rope_table_.data(), Shape(context, c.rotated_dims / 2, 2), DType::f32},
           .rotated_dims = c.rotated_dims,
           .pairing = c.pairing};
}

}  // namespace inferno
