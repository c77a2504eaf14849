// Encoders: BERT (also RoBERTa and XLM-R), nomic-bert and ModernBERT. Every token sees all of its text; norms subtract
// the mean. BERT and nomic-bert normalize the residual stream after each sum, ModernBERT what goes into each block.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

constexpr std::string_view kEpsKey = "attention.layer_norm_epsilon";
constexpr int32_t kModernPeriod = 3;

void configure_encoder(const ConfigKeys& keys, ModelConfig& config) {
  const ModelFile& file = keys.file();
  EncoderConfig& encoder = config.encoder;
  encoder.only = true;
  encoder.layer_norms = true;
  encoder.embedding_norm = true;
  if (const FileTensor* types = file.find_tensor("token_types.weight")) {
    if (types->shape[0] > static_cast<int64_t>(ConfigKeys::kMaxSize)) {
      fail("\"{}\": token_types.weight has {} rows", file.path(), types->shape[0]);
    }
    encoder.types = types->shape.rank == 1 ? 1 : static_cast<int32_t>(types->shape[0]);
  }
  for (LayerConfig& layer : config.layers) {
    layer.causal = false;
    layer.fused_qkv = file.find_tensor(layer_tensor_name(0, "attn_qkv.weight")) != nullptr;
  }
}

void configure_bert(const ConfigKeys& keys, ModelConfig& config) {
  configure_encoder(keys, config);
  config.ropes.clear();
  config.encoder.positions = true;
  config.encoder.output_norm = false;
  for (LayerConfig& layer : config.layers) {
    layer.rope = kNoRope;
    layer.pre_norms = false;
    layer.sum_norms = true;
    layer.gated = false;
    layer.activation = Activation::gelu_erf;
  }
}

void configure_nomic_bert(const ConfigKeys& keys, ModelConfig& config) {
  configure_encoder(keys, config);
  config.encoder.output_norm = false;
  for (LayerConfig& layer : config.layers) {
    layer.pre_norms = false;
    layer.sum_norms = true;
  }
}

void configure_modern_bert(const ConfigKeys& keys, ModelConfig& config) {
  configure_encoder(keys, config);
  RopeConfig local = config.ropes[0];
  local.base = keys.positive("rope.freq_base_swa", local.base);
  config.ropes.push_back(local);
  if (keys.has("attention.sliding_window")) {
    const int32_t window = keys.size("attention.sliding_window");
    set_windows(keys, config, window, kModernPeriod);
    // The first of every `period` layers sees all, not the last.
    if (!keys.file().is_array(keys.key("attention.sliding_window_pattern"))) {
      const auto period =
          static_cast<size_t>(keys.find_size("attention.sliding_window_pattern").value_or(kModernPeriod));
      for (size_t i = 0; i < config.layers.size(); ++i) config.layers[i].window = i % period == 0 ? 0 : window;
    }
  }
  const std::string* activation = keys.find_string("hidden_activation");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.rope = layer.window != 0 ? 1 : 0;
    layer.attn_norm =
        keys.file().find_tensor(layer_tensor_name(static_cast<int32_t>(i), "attn_norm.weight")) != nullptr;
    layer.fused_gate_up = true;
    layer.activation = activation != nullptr && *activation == "silu" ? Activation::silu : Activation::gelu_erf;
  }
}

}  // namespace

void read_pooling(const ConfigKeys& keys, ModelConfig& config) {
  const ModelFile& file = keys.file();
  EncoderConfig& encoder = config.encoder;
  if (const auto pooling = file.find_uint(keys.key("pooling_type"))) {
    if (*pooling > static_cast<uint64_t>(Pooling::rank)) {
      fail("\"{}\": {} is {}, must be 0 to 4", file.path(), keys.key("pooling_type"), *pooling);
    }
    encoder.pooling = static_cast<Pooling>(*pooling);
  }
  const auto rows_of = [&](std::string_view name) -> int32_t {
    const FileTensor* tensor = file.find_tensor(name);
    if (tensor == nullptr) return 0;
    const int64_t rows = tensor->shape.rank == 1 ? 1 : tensor->shape[0];
    if (rows > static_cast<int64_t>(ConfigKeys::kMaxSize)) fail("\"{}\": {} has {} rows", file.path(), name, rows);
    return static_cast<int32_t>(rows);
  };
  encoder.dense[0] = rows_of("dense_2.weight");
  encoder.dense[1] = encoder.dense[0] == 0 ? 0 : rows_of("dense_3.weight");
  encoder.classes = rows_of("cls.output.weight");
  encoder.class_layer = encoder.classes > 0 && file.find_tensor("cls.weight") != nullptr;
}

const Architecture kBert = {"bert", configure_bert, kEpsKey};
const Architecture kNomicBert = {"nomic-bert", configure_nomic_bert, kEpsKey};
const Architecture kModernBert = {"modern-bert", configure_modern_bert, kEpsKey};

}  // namespace inferno
