// The definition of moe_mlp: every expert computes every token, and the router's weights, most of them 0, decide what
// counts. Which experts a token has is thereby no question of control flow.
#include "backend/default_parts.h"

namespace inferno::fused_defaults {
namespace {

// Memory that all experts use one after another.
struct Temporaries {
  Tensor gate, up;                       // [T, ffn]
  Tensor out;                            // [T, d]
  Tensor column;                         // [T, 1]
  Tensor factors;                        // [T, d]
  Tensor gate_bias, up_bias, down_bias;  // of all experts, or empty
};

Tensor vector_or_empty(Backend& b, const Weight* w) {
  return w == nullptr ? Tensor{} : vector_of(b, *w);
}

// Expert `e`'s part of a vector of all.
void add_bias(Backend& b, const Tensor& biases, int64_t e, const Tensor& to) {
  if (biases.empty()) return;
  b.add({.a = to, .b = {biases.f32() + e * to.cols(), Shape(to.cols())}, .out = to});
}

// sum += weights[:, e] * expert e of h
void add_expert(Backend& b, const MoeMlpArgs& a, const RowProducts& products, const Tensor& h, const Tensor& weights,
                int64_t e, const Temporaries& t, const Tensor& sum) {
  products.run(b, h, *a.up, e * t.up.cols(), t.up);
  add_bias(b, t.up_bias, e, t.up);
  if (a.gate != nullptr) {
    products.run(b, h, *a.gate, e * t.gate.cols(), t.gate);
    add_bias(b, t.gate_bias, e, t.gate);
    b.activate({.x = t.gate, .factor = t.up, .activation = a.activation, .out = t.gate});
  } else {
    b.activate({.x = t.up, .activation = a.activation, .out = t.gate});
  }
  products.run(b, t.gate, *a.down, e * t.out.cols(), t.out);
  add_bias(b, t.down_bias, e, t.out);
  b.copy_2d_from_cols({.x = weights, .col_offset = e, .out = t.column});
  b.broadcast_row_scalars({.t = t.column.view(Shape(t.column.elements())), .out = t.factors});
  b.hadamard({.a = t.out, .b = t.factors, .out = t.out});
  b.add({.a = sum, .b = t.out, .out = sum});
}

// to = shared * sigmoid(h . gate), or shared.
void shared_part(Backend& b, const MoeMlpArgs& a, const Tensor& h, const Temporaries& t, const Tensor& to) {
  if (a.shared_gate == nullptr) {
    b.reshape_data({.x = a.shared, .out = to});
    return;
  }
  b.matmul({.a = h, .b = vector_of(b, *a.shared_gate).view(Shape(h.cols(), 1)), .out = t.column});
  b.broadcast_row_scalars({.t = t.column.view(Shape(t.column.elements())), .out = t.factors});
  b.activate({.x = t.factors, .factor = a.shared, .activation = Activation::sigmoid, .out = to});
}

// sum = shared * sigmoid(h . gate), or shared, or 0.
void begin_sum(Backend& b, const MoeMlpArgs& a, const Tensor& h, const Temporaries& t, const Tensor& sum) {
  if (a.shared.empty() || a.experts_norm != nullptr) {
    b.scale({.x = h, .s = 0, .out = sum});
    return;
  }
  shared_part(b, a, h, t, sum);
}

// What follows the sum over experts, with its norm: the expert of all tokens is beside it.
void norm_sum(Backend& b, const MoeMlpArgs& a, const Tensor& h, const Temporaries& t, const Tensor& sum) {
  if (a.experts_norm == nullptr) return;
  b.rms_norm({.x = sum, .weight = a.experts_norm, .eps = a.eps, .out = sum});
  if (a.shared.empty()) return;
  shared_part(b, a, h, t, t.out);
  b.add({.a = sum, .b = t.out, .out = sum});
}

}  // namespace
void moe_mlp(Backend& b, const MoeMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t d = a.x.cols();
  const int64_t experts = a.router->rows();
  const int64_t ffn = a.up->shape()[1];
  Tensor h = a.x;
  if (a.norm != nullptr) {
    h = temporary(b, a.x.shape);
    b.rms_norm({.x = a.x, .weight = a.norm, .eps = a.eps, .out = h});
  }
  const Tensor logits = temporary(b, Shape(tokens, experts));
  const Tensor weights = temporary(b, Shape(tokens, experts));
  Tensor router_input = h;
  if (a.router_norm != nullptr) {
    router_input = temporary(b, a.x.shape);
    b.rms_norm({.x = a.x, .weight = a.router_norm, .eps = a.eps, .out = router_input});
  }
  b.linear({.x = router_input, .w = {a.router}, .bias = {a.router_bias}, .out = {logits}});
  b.route(
      {.logits = logits, .selection_bias = vector_or_empty(b, a.selection_bias), .routing = a.routing, .out = weights});
  if (a.expert_scale != nullptr) b.hadamard({.a = weights, .b = vector_of(b, *a.expert_scale), .out = weights});

  const Temporaries t{.gate = temporary(b, Shape(tokens, ffn)),
                      .up = temporary(b, Shape(tokens, ffn)),
                      .out = temporary(b, Shape(tokens, d)),
                      .column = temporary(b, Shape(tokens, 1)),
                      .factors = temporary(b, Shape(tokens, d)),
                      .gate_bias = vector_or_empty(b, a.bias[0]),
                      .up_bias = vector_or_empty(b, a.bias[1]),
                      .down_bias = vector_or_empty(b, a.bias[2])};
  const Tensor sum = temporary(b, Shape(tokens, d));
  const RowProducts products(b, tokens, std::max(d, ffn), std::max(d, ffn));
  begin_sum(b, a, h, t, sum);
  for (int64_t e = 0; e < experts; ++e) add_expert(b, a, products, h, weights, e, t, sum);
  norm_sum(b, a, h, t, sum);

  if (a.post_norm != nullptr) b.rms_norm({.x = sum, .weight = a.post_norm, .eps = a.eps, .out = sum});
  if (a.residual_scale != 1) b.scale({.x = sum, .s = a.residual_scale, .out = sum});
  if (a.residual.empty()) {
    b.reshape_data({.x = sum, .out = a.out});
  } else {
    b.add({.a = sum, .b = a.residual, .out = a.out});
  }
  if (a.out_scale != 1) b.scale({.x = a.out, .s = a.out_scale, .out = a.out});
}

}  // namespace inferno::fused_defaults
