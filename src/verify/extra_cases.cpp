// The arguments of fused ops that only some model families use: each alone, then several together.
#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

class Cases {
 public:
  explicit Cases(uint32_t first_seed) : seed_(first_seed) {}
  void add_image(std::string name, OpImage image) {
    cases_.push_back({std::move(name), std::move(image)});
    ++seed_;
  }
  [[nodiscard]] uint32_t seed() const { return seed_; }
  std::vector<OpCase> take() { return std::move(cases_); }

 private:
  uint32_t seed_;
  std::vector<OpCase> cases_;
};

void add_linear(Cases& list) {
  for (const int64_t tokens : {1, 5}) {
    const std::string name = ", " + std::to_string(tokens) + " tokens";
    list.add_image("post-norm, residual is out" + name, linear_case({.tokens = tokens,
                                                                     .k = 160,
                                                                     .n = {67},
                                                                     .weight = DType::q8_0,
                                                                     .bias = true,
                                                                     .residual = true,
                                                                     .residual_is_out = true,
                                                                     .post_norm = true},
                                                                    list.seed()));
    list.add_image(
        "residual scale" + name,
        linear_case({.tokens = tokens, .k = 96, .n = {67}, .residual = true, .residual_scale = 0.22F}, list.seed()));
    list.add_image(
        "out scale" + name,
        linear_case({.tokens = tokens, .k = 96, .n = {67}, .residual = true, .out_scale = 0.7F}, list.seed()));
    list.add_image("norms of parts" + name, linear_case({.tokens = tokens,
                                                         .k = 96,
                                                         .n = {96},
                                                         .residual = true,
                                                         .residual_is_out = true,
                                                         .post_norm = true,
                                                         .norms = 3,
                                                         .residual_scale = 0.7F},
                                                        list.seed()));
  }
  list.add_image(
      "post-norm and scale of a row subset, no residual",
      linear_case({.tokens = 6, .k = 96, .n = {50}, .rows = {5, 0, 3}, .post_norm = true, .residual_scale = 3},
                  list.seed()));
}

// For one token and for several sequences.
void add_qkv(Cases& list) {
  const AttentionShape one{.sequences = {{.cached = 9, .queries = 1}}, .q_heads = 4, .kv_heads = 2, .head_dim = 32};
  for (AttentionShape attention : {one, mixed_batch(DType::f32, 32)}) {
    const QkvShape plain{.attention = attention, .width = 96, .weight = DType::q8_0, .qk_norm = true};
    const auto add = [&](const char* name, auto change) {
      QkvShape shape = plain;
      change(shape);
      list.add_image(std::string(name) + (attention.sequences.size() == 1 ? ", one token" : ", mixed"),
                     qkv_case(shape, list.seed()));
    };
    add("norms of rows", [](QkvShape& s) { s.row_norms = true; });
    add("norm of v", [](QkvShape& s) { s.v_norm = true; });
    add("v is k", [](QkvShape& s) { s.v_is_k = true; });
    add("no k and v", [](QkvShape& s) { s.stores = false; });
    add("no rotation", [](QkvShape& s) { s.rotates = false; });
    add("a rotation of q", [](QkvShape& s) { s.q_rope = true; });
    add("gate", [](QkvShape& s) { s.gate = true; });
    add("gate per head", [](QkvShape& s) { s.gate = s.attention.gate_per_head = true; });
    add("values unlike keys", [](QkvShape& s) { s.attention.v_head_dim = 64; });
    add("all", [](QkvShape& s) {
      s.row_norms = s.v_norm = s.v_is_k = s.q_rope = s.gate = s.bias = true;
      s.attention.kv = DType::bf16;
    });
  }
}

// Windows that begin inside a span, before it and at its first position; queries on both sides of a span's
// end.
void add_attention(Cases& list, DType kv) {
  const AttentionShape deep{.sequences = {{.cached = 700, .queries = 1}, {.cached = 500, .queries = 30}},
                            .q_heads = 4,
                            .kv_heads = 2,
                            .head_dim = 64,
                            .kv = kv};
  // Too few heads for threads to divide: they divide the spans.
  AttentionShape one = deep;
  one.sequences.resize(1);
  one.kv_heads = 1;
  const std::pair<const char*, AttentionShape> kinds[] = {
      {"mixed", mixed_batch(kv, 64)}, {"deep", deep}, {"one token", one}};
  for (const auto& [kind, plain] : kinds) {
    const auto add = [&](const char* name, auto change) {
      AttentionShape shape = plain;
      change(shape);
      list.add_image(std::string(dtype_name(kv)) + ", " + name + ", " + kind, attention_case(shape, list.seed()));
    };
    for (const int32_t window : {1, 8, 189, 300, 1000}) {
      add("window", [&](AttentionShape& s) { s.window = window; });
    }
    add("soft cap", [](AttentionShape& s) { s.softcap = 2; });
    add("sinks", [](AttentionShape& s) { s.sinks = true; });
    add("not causal", [](AttentionShape& s) { s.causal = false; });
    add("not causal, window", [](AttentionShape& s) {
      s.causal = false;
      s.window = 9;
    });
    add("gate", [](AttentionShape& s) { s.gate = true; });
    add("softplus gate per head", [](AttentionShape& s) {
      s.gate = s.gate_per_head = true;
      s.gate_activation = Activation::softplus;
    });
    add("values unlike keys", [](AttentionShape& s) { s.v_head_dim = 32; });
    add("values in keys", [](AttentionShape& s) {
      s.v_head_dim = 32;
      s.v_in_k = true;
    });
    add("all", [](AttentionShape& s) {
      s.window = 300;
      s.softcap = 5;
      s.sinks = s.gate = true;
      s.v_head_dim = 32;
    });
  }
}

void add_mlp(Cases& list) {
  for (const int64_t tokens : {1, 6, 40}) {
    const auto add = [&](const std::string& name, auto change) {
      MlpShape shape{.tokens = tokens, .width = 96, .ffn = 160, .weight = DType::q8_0, .down = DType::q8_0};
      change(shape);
      list.add_image(name + ", " + std::to_string(tokens) + " tokens", mlp_case(shape, list.seed()));
    };
    for (const Activation f : kAllActivations) {
      const std::string name = "activation " + std::to_string(static_cast<int>(f));
      add(name, [&](MlpShape& s) { s.activation = f; });
      add(name + ", no gate", [&](MlpShape& s) {
        s.activation = f;
        s.gated = false;
      });
    }
    add("bias", [](MlpShape& s) { s.bias = true; });
    add("post-norm", [](MlpShape& s) { s.post_norm = true; });
    add("residual scale", [](MlpShape& s) { s.residual_scale = 0.3F; });
    add("out scale", [](MlpShape& s) { s.out_scale = 0.3F; });
    add("all, no gate, no residual", [](MlpShape& s) {
      s = {.tokens = s.tokens, .width = 96, .ffn = 160, .residual_is_out = false, .gated = false, .bias = true};
      s.activation = Activation::relu_squared;
      s.post_norm = true;
      s.residual_scale = 2;
    });
  }
}

// One token, few, and more than tiles of kernels have, with odd numbers of rows.
void add_moe(Cases& list) {
  for (const int64_t tokens : {1, 2, 7, 70}) {
    const auto add = [&](const std::string& name, auto change) {
      MoeShape shape{.tokens = tokens, .width = 96, .ffn = 160, .weight = DType::q8_0, .down = DType::q8_0};
      change(shape);
      list.add_image(name + ", " + std::to_string(tokens) + " tokens", moe_case(shape, list.seed()));
    };
    add("one expert", [](MoeShape& s) { s.experts = s.routing.used = 1; });
    add("all experts", [](MoeShape& s) { s.experts = s.routing.used = 4; });
    add("odd rows", [](MoeShape& s) {
      s = {.tokens = s.tokens, .width = 77, .ffn = 45, .experts = 13};
      s.routing.used = 5;
    });
    add("types that differ", [](MoeShape& s) {
      s.width = s.ffn = 256;
      s.weight = DType::q4_k;
      s.down = DType::q6_k;
    });
    for (int score = 0; score < kRouterScores; ++score) {
      add("score " + std::to_string(score), [&](MoeShape& s) {
        s.routing = {.score = static_cast<RouterScore>(score), .used = 2, .normalize = score != 0, .scale = 2.5F};
        s.selection_bias = score != 2;
      });
    }
    add("shared", [](MoeShape& s) { s.shared = true; });
    add("shared and its gate", [](MoeShape& s) { s.shared = s.shared_gate = true; });
    add("biases, clamped", [](MoeShape& s) {
      s.bias = true;
      s.activation = Activation::clamped_silu;
    });
    add("all", [](MoeShape& s) {
      s.bias = s.shared = s.shared_gate = s.post_norm = s.selection_bias = true;
      s.norm = s.residual_is_out = false;
      s.residual_scale = 0.3F;
      s.activation = Activation::gelu_tanh;
      s.weight = s.down = DType::f32;
    });
    add("post-norm", [](MoeShape& s) { s.post_norm = true; });
    add("no gate", [](MoeShape& s) {
      s.gated = false;
      s.shared = true;
      s.activation = Activation::relu_squared;
    });
    add("no gate, biases", [](MoeShape& s) {
      s.gated = false;
      s.bias = true;
    });
    add("groups", [](MoeShape& s) {
      s.routing = {.score = RouterScore::sigmoid, .used = 3, .groups = 4, .groups_used = 2};
      s.selection_bias = true;
    });
    add("groups of one", [](MoeShape& s) { s.routing = {.used = 2, .groups = 8, .groups_used = 3}; });
    add("a norm of the router", [](MoeShape& s) {
      s.router_norm = true;
      s.routing.logit_scale = 0.25F;
    });
    add("a norm of the router alone", [](MoeShape& s) {
      s.router_norm = true;
      s.norm = false;
    });
    add("scales of experts", [](MoeShape& s) { s.expert_scale = true; });
    add("a norm of the sum", [](MoeShape& s) { s.experts_norm = true; });
    add("out scale", [](MoeShape& s) { s.out_scale = 0.4F; });
    add("logit scale", [](MoeShape& s) { s.routing.logit_scale = 0.25F; });
    add("norms of everything, out scale", [](MoeShape& s) {
      s.router_norm = s.expert_scale = s.experts_norm = s.shared = s.post_norm = true;
      s.activation = Activation::gelu_tanh;
      s.out_scale = 0.4F;
    });
  }
}

void add_logits(Cases& list) {
  list.add_image("scale", logits_case({.tokens = 3, .rows = {0, 2}, .scale = 0.25F}, list.seed()));
  list.add_image("soft cap", logits_case({.tokens = 3, .rows = {0, 2}, .softcap = 1.5F}, list.seed()));
}

}  // namespace

std::vector<OpCase> extra_cases(OpId op, uint32_t seed) {
  Cases list(seed);
  if (op == OpId::linear) add_linear(list);
  if (op == OpId::qkv_rope_store) add_qkv(list);
  if (op == OpId::attention) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) add_attention(list, dtype);
  }
  if (op == OpId::gated_mlp) add_mlp(list);
  if (op == OpId::moe_mlp) add_moe(list);
  if (op == OpId::logits) add_logits(list);
  return list.take();
}

}  // namespace inferno
