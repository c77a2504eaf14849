#include "synthetic/synthetic_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/config.h"
#include "model/layer_weights.h"
#include "model/tensor_names.h"
#include "model/weight_types.h"

namespace inferno {
namespace {

// The 256 bytes as byte-level vocabularies spell them: printable ones as themselves, the rest from U+0100 on.
std::string spell_byte(int byte) {
  static const std::array<int, 256> kCodePoints = [] {
    std::array<int, 256> points{};
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      points[static_cast<size_t>(b)] = itself ? b : next++;
    }
    return points;
  }();
  const int point = kCodePoints[static_cast<size_t>(byte)];
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

// Llama 3's: wavelengths beyond 8192 positions are stretched 32-fold, those below 2048 not at all, smoothly between.
std::vector<float> llama3_factors(const ModelShape& shape) {
  std::vector<float> factors;
  for (uint32_t i = 0; i < shape.head_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(shape.rope_base, 2.0 * i / shape.head_dim);
    const double smooth = std::clamp((8192 / wavelength - 1) / (4 - 1), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / 32 + smooth)));
  }
  return factors;
}

}  // namespace

SyntheticModel::SyntheticModel(const ModelShape& shape, std::string_view type, uint64_t seed,
                               const std::vector<MetadataEntry>& changes)
    : shape_(shape), seed_(seed), name_(fmt::format("{} with random weights", shape.name)) {
  set_config(type);
  set_vocabulary();
  for (const MetadataEntry& change : changes) set(change.key, change.value);
  add_tensors(type);
}

// ---- metadata

void SyntheticModel::set(const std::string& key, MetadataValue value) {
  const auto found = std::ranges::find(metadata_, key, &MetadataEntry::key);
  if (found != metadata_.end()) {
    found->value = std::move(value);
  } else {
    metadata_.push_back({key, std::move(value)});
  }
}

const MetadataValue* SyntheticModel::find(std::string_view key) const {
  const auto found = std::ranges::find(metadata_, key, &MetadataEntry::key);
  return found == metadata_.end() ? nullptr : &found->value;
}

void SyntheticModel::set_config(std::string_view type) {
  const std::string prefix = std::string(shape_.architecture) + ".";
  const auto number = [&](const char* key, uint32_t value) { set(prefix + key, MetadataValue(value)); };
  set("general.architecture", MetadataValue(std::string(shape_.architecture)));
  set("general.name", MetadataValue(name_));
  set("general.file_type", MetadataValue(gguf_file_type(type)));
  number("block_count", shape_.layers);
  number("context_length", shape_.context);
  number("embedding_length", shape_.width);
  number("feed_forward_length", shape_.ffn);
  if (shape_.experts > 0) {
    number("expert_count", shape_.experts);
    number("expert_used_count", shape_.experts_used);
    number("expert_feed_forward_length", shape_.ffn);
  }
  number("attention.head_count", shape_.q_heads);
  number("attention.head_count_kv", shape_.kv_heads);
  number("attention.key_length", shape_.head_dim);
  number("attention.value_length", shape_.head_dim);
  number("rope.dimension_count", shape_.rotated_dims > 0 ? shape_.rotated_dims : shape_.head_dim);
  if (shape_.state_dim > 0) {
    number("ssm.conv_kernel", 4);
    number("ssm.state_size", shape_.state_dim);
    number("ssm.group_count", shape_.state_k_heads);
    number("ssm.time_step_rank", shape_.state_v_heads);
    number("ssm.inner_size", shape_.state_v_heads * shape_.state_dim);
    number("full_attention_interval", 4);
    // Text has one position for all three; other programs want the shares nevertheless.
    const auto pairs = static_cast<int32_t>(shape_.rotated_dims > 0 ? shape_.rotated_dims : shape_.head_dim) / 2;
    const int32_t third = (pairs + 2) / 3;
    set(prefix + "rope.dimension_sections",
        MetadataValue(MetadataArray{std::vector{third, third, pairs - 2 * third, 0}}));
  }
  if (shape_.window > 0) number("attention.sliding_window", shape_.window);
  number("vocab_size", shape_.vocabulary);
  set(prefix + "attention.layer_norm_rms_epsilon", MetadataValue(shape_.norm_eps));
  set(prefix + "rope.freq_base", MetadataValue(shape_.rope_base));
}

// The 256 bytes and names nobody types.
void SyntheticModel::set_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(spell_byte(byte));
  tokens.emplace_back("th");  // so that the list of merges is not empty, which some programs refuse
  INFERNO_CHECK(shape_.vocabulary > tokens.size());
  while (tokens.size() + 1 < shape_.vocabulary) tokens.push_back(fmt::format("unused_{}", tokens.size()));
  tokens.emplace_back("<|endoftext|>");
  std::vector<int32_t> types(tokens.size(), static_cast<int32_t>(TokenType::normal));
  types.back() = static_cast<int32_t>(TokenType::control);
  const auto end = static_cast<uint32_t>(tokens.size() - 1);
  set(std::string(kTokenizerModelKey), MetadataValue("gpt2"));
  set("tokenizer.ggml.pre", MetadataValue(shape_.architecture == "llama"    ? "llama-bpe"
                                          : shape_.architecture == "qwen35" ? "qwen35"
                                                                            : "qwen2"));
  set("tokenizer.ggml.tokens", MetadataValue(MetadataArray{StringList(tokens)}));
  set("tokenizer.ggml.token_type", MetadataValue(MetadataArray{std::move(types)}));
  set("tokenizer.ggml.merges", MetadataValue(MetadataArray{StringList({"t h"})}));
  set("tokenizer.ggml.eos_token_id", MetadataValue(end));
  set("tokenizer.ggml.bos_token_id", MetadataValue(end));
  set("tokenizer.ggml.add_bos_token", MetadataValue(false));
}

// ---- tensors

const FileTensor* SyntheticModel::find_tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &RandomTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void SyntheticModel::add(RandomTensor tensor) {
  tensor.type_name = dtype_name(*tensor.dtype);
  tensor.bytes = static_cast<uint64_t>(tensor.shape.rows() * row_bytes(*tensor.dtype, tensor.shape.cols()));
  tensor.seed = random_bits(seed_, tensors_.size());
  bytes_ += tensor.bytes;
  tensors_.push_back(std::move(tensor));
}

void SyntheticModel::add_vector(std::string name, const Shape& shape, Kind kind) {
  RandomTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = shape;
  tensor.dtype = DType::f32;
  tensor.kind = kind;
  add(std::move(tensor));
}

void SyntheticModel::add_matrix(std::string name, const Shape& shape, DType dtype) {
  RandomTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = shape;
  tensor.dtype = dtype;
  tensor.pool = &pools_.try_emplace({dtype, shape.cols()}, dtype, shape.cols(), seed_).first->second;
  add(std::move(tensor));
}

SyntheticModel::Kind SyntheticModel::kind_of(std::string_view part) {
  if (part == "ssm_a") return Kind::decay;
  return part.ends_with(".bias") ? Kind::bias : Kind::norm;
}

// The embedding and the rope factors come first: with them the metadata says what the layers have.
void SyntheticModel::add_tensors(std::string_view type) {
  const MixInput mix{.layers = static_cast<int32_t>(shape_.layers),
                     .tied = shape_.tied,
                     .queries_per_value = static_cast<int32_t>(shape_.q_heads / shape_.kv_heads)};
  const auto matrix = [&](std::string name, const Shape& shape) {
    const DType dtype = is_quantizable(name, shape) ? choose_weight_type(type, name, shape, mix).dtype : DType::f32;
    add_matrix(std::move(name), shape, dtype);
  };
  const Shape table(shape_.vocabulary, shape_.width);
  matrix(std::string(kEmbeddingTensor), table);
  if (shape_.rope_factors) add_vector(std::string(kRopeFactorsTensor), Shape(shape_.head_dim / 2), Kind::rope_factors);
  const ModelConfig config = read_config(*this);
  for (int32_t i = 0; i < config.layer_count(); ++i) {
    for (const LayerTensor& tensor : layer_tensors(config, i)) {
      // Of what is one tensor in a file only the first part stands for it.
      const bool fused = !tensor.fused_part.empty();
      if (fused && tensor.first_row > 0) continue;
      std::string name = layer_tensor_name(i, fused ? tensor.fused_part : tensor.part);
      if (tensor.shape.rank > 1) {
        Shape shape = tensor.shape;
        if (fused) shape.dims[shape.rank == 3 ? 1 : 0] = tensor.fused_rows * tensor.blocks;
        matrix(std::move(name), shape);
      } else {
        add_vector(std::move(name), tensor.file_shape.rank > 0 ? tensor.file_shape : tensor.shape,
                   kind_of(tensor.part));
      }
    }
  }
  if (config.layer_inputs > 0) {
    const int64_t all = int64_t{config.layer_inputs} * config.layer_count();
    matrix(std::string(kLayerInputTable), Shape(shape_.vocabulary, all));
    matrix(std::string(kLayerInputProjection), Shape(all, shape_.width));
    add_vector(std::string(kLayerInputNorm), Shape(config.layer_inputs), Kind::norm);
  }
  add_vector(std::string(config.output_norm_tensor), Shape(shape_.width), Kind::norm);
  if (!shape_.tied) matrix(std::string(kHeadTensor), table);
}

std::vector<float> SyntheticModel::vector_values(const RandomTensor& tensor) const {
  if (tensor.kind == Kind::rope_factors) return llama3_factors(shape_);
  const float mean = tensor.kind == Kind::norm ? 1.0F : tensor.kind == Kind::decay ? -1.0F : 0.0F;
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = mean + 0.1F * random_normal(tensor.seed, i);
  return values;
}

void SyntheticModel::read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const {
  INFERNO_CHECK(begin <= tensor.bytes && out.size() <= tensor.bytes - begin);
  const auto& random = static_cast<const RandomTensor&>(tensor);  // this model gives out no others
  if (random.kind == Kind::matrix) {
    random.pool->read(random.seed, begin, out);
  } else {
    const std::vector<float> values = vector_values(random);
    std::ranges::copy(std::as_bytes(std::span(values)).subspan(begin, out.size()), out.begin());
  }
}

}  // namespace inferno
