// The definitions of the ops that carry a state from token to token: short_conv, delta_net and
// mamba2.
//
// Sequence by sequence and token by token, in the order of the formulas in op_args.h. States lie in the sequence's slot
// and are changed in place.
#include <cmath>

#include "backend/default_parts.h"

namespace inferno::fused_defaults {
namespace {

// Added to the squares of q and k before they are scaled to unit length.
constexpr float kUnitEps = 1e-6F;

// The state of sequence s as a matrix of that many columns, zeros at the beginning of the sequence.
Tensor begin_state(Backend& b, const Tensor& states, const StepBatch& batch, int32_t s, int64_t cols) {
  const int64_t rows = states.cols() / cols;
  const Tensor state = states.row_range(batch.state_slot[s], 1).view(Shape(rows, cols));
  if (batch.pos[batch.q_begin[s]] == 0) b.fill_strict_upper_tri({.x = state, .value = 0, .offset = -rows});
  return state;
}

// Rows of heads, each scaled to the length `scale`: a norm divides by the root of the mean of squares, not of their
// sum.
void scale_heads(Backend& b, const Tensor& x, int64_t head_dim, float scale) {
  const Tensor heads = x.view(Shape(x.elements() / head_dim, head_dim));
  const auto n = static_cast<float>(head_dim);
  b.rms_norm({.x = heads, .eps = kUnitEps / n, .out = heads});
  b.scale({.x = heads, .s = scale / std::sqrt(n), .out = heads});
}

// softplus(dt + bias)
Tensor steps(Backend& b, const Tensor& dt, const Weight& bias) {
  const Tensor x = temporary(b, dt.shape);
  b.add({.a = dt, .b = vector_of(b, bias), .out = x});
  b.activate({.x = x, .activation = Activation::softplus, .out = x});
  return x;
}

// exp(a * step), as sigmoid(x) / sigmoid(-x) of the exponent, which is negative.
Tensor decays(Backend& b, const Tensor& step, const Weight& a) {
  const Tensor x = temporary(b, step.shape);
  const Tensor below = temporary(b, step.shape);
  b.hadamard({.a = step, .b = vector_of(b, a), .out = x});
  b.scale({.x = x, .s = -1, .out = below});
  b.activate({.x = below, .activation = Activation::sigmoid, .out = below});
  b.rsqrt_elem({.x = below, .out = below});
  b.activate({.x = x, .factor = below, .activation = Activation::sigmoid, .out = x});
  b.hadamard({.a = x, .b = below, .out = x});
  return x;
}

// x *= the factor at `at`.
void multiply_by(Backend& b, const Tensor& x, const float* at, const Tensor& memory) {
  const Tensor factors = memory.view(Shape(1, x.elements()));
  b.broadcast_row_scalars({.t = {const_cast<float*>(at), Shape(1)}, .out = factors});
  b.hadamard({.a = x, .b = factors.view(x.shape), .out = x});
}

}  // namespace

void short_conv(Backend& b, const ShortConvArgs& a) {
  const int64_t channels = a.x.cols();
  const int64_t taps = a.weight->cols() / channels;
  const Tensor weight = temporary(b, Shape(taps, channels));
  b.transpose_2d({.x = vector_of(b, *a.weight).view(Shape(channels, taps)), .out = weight});
  const Tensor inputs = temporary(b, Shape(a.x.rows() + taps - 1, channels));
  const Tensor product = temporary(b, a.x.shape);
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t first = a.batch.q_begin[s];
    const int64_t tokens = a.batch.q_begin[s + 1] - first;
    if (tokens == 0) continue;
    const Tensor state = begin_state(b, a.state, a.batch, s, channels);
    // Earlier inputs, then those of this step.
    const Tensor all = inputs.view(Shape(taps - 1 + tokens, channels));
    b.concat_dim0({.a = state, .b = a.x.row_range(first, tokens), .out = all});
    const Tensor own = all.row_range(taps - 1, tokens);
    if (!a.factor.empty()) b.hadamard({.a = own, .b = a.factor.row_range(first, tokens), .out = own});
    const Tensor out = a.out.row_range(first, tokens);
    for (int64_t k = 0; k < taps; ++k) {
      const Tensor part = k == 0 ? out : product.view(out.shape);
      const Tensor tap = weight.row_range(k, 1).view(Shape(channels));
      b.hadamard({.a = all.row_range(k, tokens), .b = tap, .out = part});
      if (k > 0) b.add({.a = out, .b = part, .out = out});
    }
    if (a.bias != nullptr) b.add({.a = out, .b = vector_of(b, *a.bias), .out = out});
    if (a.silu) b.silu({.x = out, .out = out});
    if (!a.gate.empty()) b.hadamard({.a = out, .b = a.gate.row_range(first, tokens), .out = out});
    b.reshape_data({.x = all.row_range(tokens, taps - 1), .out = state});
  }
}

void delta_net(Backend& b, const DeltaNetArgs& a) {
  const int64_t d = a.head_dim();
  const int64_t v_heads = a.v_heads();
  const int64_t k_width = a.k_heads * d;
  const Tensor q = columns(b, a.qkv, 0, k_width);
  const Tensor k = columns(b, a.qkv, k_width, k_width);
  const Tensor v = columns(b, a.qkv, 2 * k_width, v_heads * d);
  scale_heads(b, q, d, 1 / std::sqrt(static_cast<float>(d)));
  scale_heads(b, k, d, 1);
  const Tensor decay = decays(b, steps(b, a.alpha, *a.dt), *a.a);
  const Tensor beta = temporary(b, a.beta.shape);
  b.activate({.x = a.beta, .activation = Activation::sigmoid, .out = beta});
  const Tensor seen = temporary(b, Shape(1, d));
  const Tensor update = temporary(b, Shape(d, d));
  const Tensor factors = temporary(b, Shape(d, d));
  const auto head = [&](const Tensor& x, int64_t token, int64_t h) {
    return Tensor{x.f32() + token * x.cols() + h * d, Shape(1, d)};
  };
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    if (a.batch.q_begin[s] == a.batch.q_begin[s + 1]) continue;
    const Tensor states = begin_state(b, a.state, a.batch, s, d);
    for (int64_t t = a.batch.q_begin[s]; t < a.batch.q_begin[s + 1]; ++t) {
      for (int64_t h = 0; h < v_heads; ++h) {
        const int64_t k_head = a.grouped ? h / (v_heads / a.k_heads) : h % a.k_heads;
        const Tensor m = states.row_range(h * d, d);
        const Tensor key = head(k, t, k_head);
        multiply_by(b, m, decay.f32() + t * v_heads + h, factors);
        b.matmul({.a = key, .b = m, .out = seen});
        b.scale({.x = seen, .s = -1, .out = seen});
        b.add({.a = seen, .b = head(v, t, h), .out = seen});
        multiply_by(b, seen, beta.f32() + t * v_heads + h, factors);
        b.matmul({.a = key.view(Shape(d, 1)), .b = seen, .out = update});
        b.add({.a = m, .b = update, .out = m});
        b.matmul({.a = head(q, t, k_head), .b = m, .out = head(a.out, t, h)});
      }
    }
  }
  b.rms_norm({.x = a.out, .weight = a.norm, .eps = a.eps, .out = a.out});
  b.activate({.x = a.z, .factor = a.out, .activation = Activation::silu, .out = a.out});
}

void mamba2(Backend& b, const Mamba2Args& a) {
  const int64_t d = a.head_dim();
  const int64_t n = a.state_size();
  const int64_t heads = a.heads();
  const Tensor x = columns(b, a.xbc, 0, heads * d);
  const Tensor step = steps(b, a.dt, *a.dt_bias);
  const Tensor decay = decays(b, step, *a.a);
  const Tensor skip = vector_of(b, *a.skip);
  const Tensor input = temporary(b, Shape(1, d));
  const Tensor update = temporary(b, Shape(n, d));
  const Tensor factors = temporary(b, Shape(n, d));
  const auto group = [&](int64_t first, int64_t token, int64_t h) {
    return Tensor{a.xbc.f32() + token * a.xbc.cols() + heads * d + first + h / (heads / a.groups) * n, Shape(1, n)};
  };
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    if (a.batch.q_begin[s] == a.batch.q_begin[s + 1]) continue;
    const Tensor states = begin_state(b, a.state, a.batch, s, d);
    for (int64_t t = a.batch.q_begin[s]; t < a.batch.q_begin[s + 1]; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const Tensor m = states.row_range(h * n, n);
        const Tensor own{x.f32() + t * x.cols() + h * d, Shape(1, d)};
        const Tensor out{a.out.f32() + t * a.out.cols() + h * d, Shape(1, d)};
        multiply_by(b, m, decay.f32() + t * heads + h, factors);
        b.reshape_data({.x = own, .out = input});
        multiply_by(b, input, step.f32() + t * heads + h, factors);
        b.matmul({.a = group(0, t, h).view(Shape(n, 1)), .b = input, .out = update});
        b.add({.a = m, .b = update, .out = m});
        b.matmul({.a = group(a.groups * n, t, h), .b = m, .out = out});
        b.reshape_data({.x = own, .out = input});
        multiply_by(b, input, skip.f32() + h, factors);
        b.add({.a = out, .b = input, .out = out});
      }
    }
  }
  b.activate({.x = a.z, .factor = a.out, .activation = Activation::silu, .out = a.out});
  const Tensor groups = a.out.view(Shape(a.out.rows() * a.groups, a.out.cols() / a.groups));
  b.rms_norm({.x = groups, .eps = a.eps, .out = groups});
  b.hadamard({.a = a.out, .b = vector_of(b, *a.norm), .out = a.out});
}

}  // namespace inferno::fused_defaults
