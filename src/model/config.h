// A model's hyper-parameters, read from a file's metadata and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"
#include "model/config_keys.h"
#include "model/rope.h"
#include "model/tensor_names.h"

namespace inferno {

inline constexpr int32_t kNoRope = -1;
inline constexpr int32_t kOwnCache = -1;

// Norms of q and k: none, one for all heads, or one over the whole row.
enum class QkNorm : uint8_t { none, heads, rows };
// A gate of attention's output: none, a value per element, or one per head.
enum class OutputGate : uint8_t { none, elements, heads };
// How the positions of a sequence reach each other.
enum class Mixer : uint8_t {
  attention,
  latent_attention,  // all heads share one row per position (LatentConfig)
  short_conv,
  delta_net,
  mamba2,
  none,  // not at all: the layer is an MLP
};

// A layer whose state takes the place of keys and values.
struct RecurrentConfig {
  int32_t conv_taps = 0;      // of its convolution
  int32_t conv_channels = 0;  // of all of them
  // delta_net alone.
  int32_t k_heads = 0;  // of queries and keys
  int32_t v_heads = 0;
  int32_t head_dim = 0;
  bool grouped = false;           // DeltaNetArgs
  bool fused_beta_alpha = false;  // the rows of both are one tensor, ssm_ba: by key head
  // mamba2, which has v_heads heads in k_heads groups.
  int32_t state_size = 0;
  bool conv_bias = false;

  [[nodiscard]] int64_t value_width() const { return int64_t{v_heads} * head_dim; }
  // What one sequence keeps: the last inputs of the convolution, and the matrices of heads.
  [[nodiscard]] int64_t conv_floats() const { return int64_t{conv_taps - 1} * conv_channels; }
  [[nodiscard]] int64_t matrix_floats() const { return value_width() * (state_size > 0 ? state_size : head_dim); }
};

// Latent attention. The layer has one kv head of rank + rotated elements, whose first `rank` are the value.
struct LatentConfig {
  int32_t query_rank = 0;  // queries are made in two products with so many elements between them; 0: in one
  int32_t rank = 0;        // of keys and values
  int32_t kept = 0;        // elements of a query that do not rotate
  int32_t rotated = 0;     // and that do
  int32_t value_dim = 0;   // of a head's output
};

// The experts of a layer.
struct ExpertsConfig {
  int32_t count = 0;  // 0: the layer has none
  int32_t ffn = 0;    // rows of gate and up of one
  Routing routing;
  int32_t shared_ffn = 0;  // of the expert that all tokens have; 0: none
  // What the file has of it.
  bool shared_gate = false;
  bool selection_bias = false;
  bool router_bias = false;
  bool bias = false;           // of gate, up and down
  bool fused_gate_up = false;  // gate's rows before up's in each matrix of one tensor, ffn_gate_up_exps
  // Gemma 4: the expert of all tokens is a plain MLP, with norms of its own and of the others' input and sum; the
  // router has its own norm, and experts have scales.
  bool beside_mlp = false;
};

// How the rows of a text become one: numbers are those of the key pooling_type.
enum class Pooling : uint8_t {
  none,  // not said
  mean,  // of all rows
  cls,   // the first row
  last,  // the last row
  rank,  // a score of a pair of texts, from the first or (causal) the last row
};

// What a model of texts, not of their next tokens, has beside its layers (encoder.h).
struct EncoderConfig {
  bool only = false;         // the model cannot make text: there is no head, and attention sees all of a text
  bool layer_norms = false;  // all norms subtract the mean
  bool positions = false;    // a learnt vector for each position
  int32_t types = 0;         // learnt vectors for the first and the second text of a pair; 0: none
  bool embedding_norm = false;
  bool output_norm = true;
  Pooling pooling = Pooling::none;
  int32_t dense[2] = {};     // rows of the layers that follow the pooling; 0: none
  int32_t classes = 0;       // rows of the layer that scores; 0: none
  bool class_layer = false;  // a layer with tanh before it
};

struct LayerConfig {
  Mixer mixer = Mixer::attention;
  RecurrentConfig recurrent;  // of a layer without attention, which has no heads
  LatentConfig latent;        // of latent attention
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;    // of q and k
  int32_t v_head_dim = 0;  // 0: as head_dim
  bool mlp = true;         // or experts; false: the layer is its mixer alone
  int32_t ffn = 0;         // rows of gate and up, in a layer without experts
  ExpertsConfig experts;
  int32_t rope = 0;  // in ModelConfig::ropes; kNoRope: q and k are not rotated

  // Attention.
  QkNorm qk_norm = QkNorm::none;
  bool v_norm = false;            // heads of v are normalized, without a weight
  bool v_is_k = false;            // no projection of its own
  int32_t kv_source = kOwnCache;  // the earlier layer whose keys and values it reads; it has none of its own then
  bool causal = true;
  int32_t window = 0;         // positions a query sees; 0: all
  float attention_scale = 0;  // 0: 1 / sqrt(head_dim)
  float softcap = 0;          // of scores; 0: none
  bool sinks = false;
  OutputGate output_gate = OutputGate::none;
  Activation gate_activation = Activation::sigmoid;

  // Norms, MLP.
  bool pre_norms = true;    // before attention and before the MLP
  bool attn_norm = true;    // with pre_norms: the one before attention exists
  bool post_norms = false;  // of what attention and the MLP add to the residual stream
  bool sum_norms = false;   // of the residual stream itself, after attention and after the MLP (encoders)
  bool gated = true;        // the MLP has a gate
  Activation activation = Activation::silu;
  float output_scale = 1;  // of the residual stream after the layer

  // Which biases there are, and what the file calls things.
  bool qkv_bias = false;
  bool output_bias = false;    // of attention's output projection
  bool ffn_bias = false;       // of gate, up and down
  bool fused_qkv = false;      // the rows of q, k and v are one tensor, attn_qkv
  bool fused_gate_up = false;  // the rows of gate and up are one tensor, ffn_up
  bool gate_in_q = false;      // the rows of the output gate follow those of q in attn_q, head by head
  std::string_view ffn_norm_tensor = "ffn_norm.weight";

  [[nodiscard]] bool attends() const { return mixer == Mixer::attention || mixer == Mixer::latent_attention; }
  [[nodiscard]] bool is_recurrent() const { return !attends() && mixer != Mixer::none; }
  // Rows of gate and up that a token is multiplied with.
  [[nodiscard]] int32_t active_ffn() const {
    return experts.count == 0 ? ffn : experts.routing.used * experts.ffn + experts.shared_ffn;
  }
  [[nodiscard]] int32_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
  [[nodiscard]] int64_t attention_width() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_width() const { return int64_t{kv_heads} * head_dim; }
  [[nodiscard]] int64_t output_width() const { return int64_t{q_heads} * value_dim(); }  // of attention
  [[nodiscard]] int64_t value_width() const { return int64_t{kv_heads} * value_dim(); }
  [[nodiscard]] int64_t gate_width() const {
    if (output_gate == OutputGate::none) return 0;
    return output_gate == OutputGate::heads ? q_heads : output_width();
  }
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int32_t width = 0;  // d: elements of the residual stream
  int32_t vocabulary = 0;
  int32_t context = 0;  // positions the model was trained for
  float norm_eps = 0;
  float embedding_scale = 1;
  float residual_scale = 1;         // of what attention and the MLP add to the residual stream
  float logit_scale = 1;            // a factor
  float logit_softcap = 0;          // 0: none
  int32_t layer_inputs = 0;         // elements of the input that each layer has of a token; 0: there are none
  std::vector<RopeConfig> ropes;    // the different rotations of the layers
  std::vector<LayerConfig> layers;  // at least one
  std::string_view output_norm_tensor = kOutputNormTensor;
  EncoderConfig encoder;

  [[nodiscard]] int32_t layer_count() const { return static_cast<int32_t>(layers.size()); }
  // Of the widest layer; q or the output of attention.
  [[nodiscard]] int64_t attention_width() const;
  [[nodiscard]] int64_t gate_width() const;
  [[nodiscard]] int32_t ffn() const;           // active_ffn
  [[nodiscard]] int64_t experts_used() const;  // by a token, at most; 0: there are none
  // Elements that a token needs between the ops of a recurrent layer, or of latent attention.
  [[nodiscard]] int64_t mixer_width() const;
  // The first layer with attention: there is one.
  [[nodiscard]] const LayerConfig& attention_layer() const;
  // Whether a layer has an expert that all tokens have.
  [[nodiscard]] bool shared_experts() const;
};

// What one architecture adds to the common metadata; one small file each.
struct Architecture {
  std::string_view name;  // general.architecture
  // Completes the config, for which the common keys have been read: one rotation, equal layers where keys say no more.
  void (*configure)(const ConfigKeys& keys, ModelConfig& config);
  std::string_view eps_key = "attention.layer_norm_rms_epsilon";
};
extern const Architecture kBert;
extern const Architecture kDeepSeek2;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kGemma4;
extern const Architecture kGemmaEmbedding;
extern const Architecture kGlm4Moe;
extern const Architecture kGptOss;
extern const Architecture kGranite;
extern const Architecture kGraniteHybrid;
extern const Architecture kLaguna;
extern const Architecture kLfm2;
extern const Architecture kLfm2Moe;
extern const Architecture kLlama;
extern const Architecture kMiniMaxM2;
extern const Architecture kMistral3;
extern const Architecture kModernBert;
extern const Architecture kNemotronH;
extern const Architecture kNemotronHMoe;
extern const Architecture kNomicBert;
extern const Architecture kOlmo2;
extern const Architecture kPhi3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kQwen3Moe;
extern const Architecture kQwen3Next;
extern const Architecture kSeedOss;
extern const Architecture kSmolLm3;

// For architectures. Gives layers a window: all but every `period`th (0: all), unless the key
// attention.sliding_window_pattern has another period or says it layer by layer.
void set_windows(const ConfigKeys& keys, ModelConfig& config, int32_t window, int32_t period);

// For architectures. Makes a layer recurrent: it has no heads and no cache.
void set_recurrent(LayerConfig& layer, Mixer mixer, const RecurrentConfig& recurrent);

// For architectures. What the keys ssm.* say about layers of Mamba-2.
[[nodiscard]] RecurrentConfig read_mamba2(const ConfigKeys& keys);

// For architectures. The layers from `first_layer` on get the experts of the keys expert_*, whose routing is
// `fallback` where they do not say more. A file without them is an Error.
void set_experts(const ConfigKeys& keys, ModelConfig& config, int32_t first_layer, const Routing& fallback);
// The key leading_dense_block_count, 0 when there is none.
[[nodiscard]] int32_t leading_dense_layers(const ConfigKeys& keys, const ModelConfig& config);

// For architectures. gemma3's, which others are made of.
void configure_gemma3(const ConfigKeys& keys, ModelConfig& config);

// For architectures. What a file says about pooling and the layers after it; every model's file may.
void read_pooling(const ConfigKeys& keys, ModelConfig& config);

// An unknown architecture, a missing key or a value that makes no sense is an Error that names it.
[[nodiscard]] ModelConfig read_config(const ModelFile& file);

}  // namespace inferno
