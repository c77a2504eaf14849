// Inputs for every op, made from a seed: the parity tests run the small ones on every backend, the op benchmark makes
// larger ones with the same functions.
//
// Outputs and cache rows nobody wrote hold NaN (all bits set), so that reading or forgetting them shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/op_image.h"

namespace inferno {

struct OpCase {
  std::string name;
  OpImage image;
};

// Cases with small and odd sizes, all weight and cache types, optional arguments present and absent. Never empty.
[[nodiscard]] std::vector<OpCase> op_cases(OpId op);

// One sequence of a step: `cached` positions from earlier steps, then `queries` new tokens.
struct SequenceShape {
  int32_t cached = 0;
  int32_t queries = 1;
};

struct AttentionShape {
  std::vector<SequenceShape> sequences;
  int32_t q_heads = 1;
  int32_t kv_heads = 1;
  int32_t head_dim = 64;
  int32_t page_size = 16;
  DType kv = DType::f32;
  int32_t v_head_dim = 0;  // 0: as head_dim
  bool v_in_k = false;     // KvLayerView
  // Of attention alone.
  bool causal = true;
  int32_t window = 0;
  float softcap = 0;
  bool sinks = false;
  bool gate = false;           // per element
  bool gate_per_head = false;  // with `gate`
  Activation gate_activation = Activation::sigmoid;
};
[[nodiscard]] OpImage attention_case(const AttentionShape& shape, uint32_t seed);

struct LinearShape {
  int64_t tokens = 1;
  int64_t k = 64;
  std::vector<int64_t> n = {64};  // one to three weights
  DType weight = DType::f32;
  bool bias = false;
  bool residual = false;
  bool residual_is_out = false;
  bool swiglu = false;
  std::vector<int32_t> rows = {};  // a subset of the tokens
  bool post_norm = false;
  int64_t norms = 1;  // with post_norm: of so many parts of a row
  float residual_scale = 1;
  float out_scale = 1;
};
[[nodiscard]] OpImage linear_case(const LinearShape& shape, uint32_t seed);

struct QkvShape {
  AttentionShape attention;
  int64_t width = 64;
  DType weight = DType::f32;
  bool norm = true;
  bool bias = false;
  bool qk_norm = false;
  RopePairing pairing = RopePairing::half_split;
  bool partial_rotation = false;  // half of the head rotates
  bool row_norms = false;         // with qk_norm: of whole rows
  bool v_norm = false;
  bool v_is_k = false;
  bool stores = true;  // false: neither k nor v
  bool rotates = true;
  bool q_rope = false;  // a table of its own
  bool gate = false;    // per element of attention's output, or per head as the attention says
};
[[nodiscard]] OpImage qkv_case(const QkvShape& shape, uint32_t seed);
// The three ops of a layer's attention as the decoder records them: projections, attention, and the output projection
// onto x.
[[nodiscard]] OpImage attention_block_case(const QkvShape& shape, bool private_results, uint32_t seed);

struct MlpShape {
  int64_t tokens = 1;
  int64_t width = 64;
  int64_t ffn = 96;
  DType weight = DType::f32;
  DType down = DType::f32;
  bool norm = true;
  bool residual_is_out = true;
  bool gated = true;
  bool bias = false;
  Activation activation = Activation::silu;
  bool post_norm = false;
  float residual_scale = 1;
  float out_scale = 1;
};
[[nodiscard]] OpImage mlp_case(const MlpShape& shape, uint32_t seed);

struct MoeShape {
  int64_t tokens = 1;
  int64_t width = 64;
  int64_t ffn = 96;
  int64_t experts = 8;
  Routing routing = {.used = 3};
  DType weight = DType::f32;
  DType down = DType::f32;
  bool norm = true;
  bool selection_bias = false;
  bool bias = false;  // of the router and of the experts
  bool shared = false;
  bool shared_gate = false;  // with `shared`
  Activation activation = Activation::silu;
  bool post_norm = false;
  float residual_scale = 1;
  bool residual_is_out = true;
  bool gated = true;
  bool router_norm = false;
  bool expert_scale = false;
  bool experts_norm = false;
  float out_scale = 1;
};
[[nodiscard]] OpImage moe_case(const MoeShape& shape, uint32_t seed);

// States of sequences that begin, in slots of nobody and of sequences at position 0, hold NaN.
struct RecurrentShape {
  std::vector<SequenceShape> sequences;
  // short_conv
  int64_t channels = 64;
  int64_t taps = 4;
  bool silu = true;
  bool gates = false;  // factor and gate
  bool bias = false;
  bool in_place = false;
  // delta_net
  int32_t k_heads = 2;
  int64_t v_heads = 4;
  int64_t head_dim = 32;
  bool grouped = false;
  // mamba2: v_heads of head_dim, in k_heads groups
  int64_t state_size = 16;
};
[[nodiscard]] OpImage short_conv_case(const RecurrentShape& shape, uint32_t seed);
[[nodiscard]] OpImage delta_net_case(const RecurrentShape& shape, uint32_t seed);
[[nodiscard]] OpImage mamba2_case(const RecurrentShape& shape, uint32_t seed);

struct LayerInputShape {
  int64_t tokens = 1;
  int64_t width = 64;
  int64_t inputs = 32;
  DType weight = DType::f32;
  float out_scale = 1;
  bool in_place = true;
};
[[nodiscard]] OpImage layer_input_case(const LayerInputShape& shape, uint32_t seed);

struct LatentShape {
  std::vector<SequenceShape> sequences;
  int64_t heads = 4;
  int64_t latent = 32;
  int64_t kept = 32;  // elements of a head that do not rotate; of head_linear: those that come out
  int32_t rotated = 32;
  DType weight = DType::f32;
  DType kv = DType::f32;
};
[[nodiscard]] OpImage latent_store_case(const LatentShape& shape, uint32_t seed);
[[nodiscard]] OpImage head_linear_case(const LatentShape& shape, uint32_t seed);

struct LogitsShape {
  int64_t tokens = 1;
  std::vector<int32_t> rows = {0};
  int64_t width = 64;
  int64_t vocabulary = 101;
  DType weight = DType::f32;
  float scale = 1;
  float softcap = 0;
};
[[nodiscard]] OpImage logits_case(const LogitsShape& shape, uint32_t seed);

[[nodiscard]] std::vector<OpCase> sample_cases();

}  // namespace inferno
