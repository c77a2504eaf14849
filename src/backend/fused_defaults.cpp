// The definition of every fused op: a short composition of primitives.
//
// Readable and boring on purpose. Temporaries come from Backend::scratch, outputs from the caller. Large weights are
// walked in blocks of rows so that scratch memory stays small whatever the vocabulary.
#include <cmath>

#include "backend/default_parts.h"
#include "backend/sampling_row.h"

namespace inferno::fused_defaults {
namespace {

// x [T, K] times rows of w, transposed, into out [T, N].
void multiply(Backend& b, const Tensor& x, const Weight& w, const Tensor& out) {
  RowProducts(b, x.rows(), w.cols(), w.rows()).run(b, x, w, 0, out);
}

Tensor batch_tensor(const int32_t* data, int64_t count) {
  return {const_cast<int32_t*>(data), Shape(count), DType::i32};
}

}  // namespace

void embed(Backend& b, const EmbedArgs& a) {
  b.gather_rows({.table = a.table, .indices = a.ids, .out = a.out});
  if (a.scale != 1) b.scale({.x = a.out, .s = a.scale, .out = a.out});
}

void rms_norm(Backend& b, const RmsNormArgs& a) {
  const int64_t cols = a.weight != nullptr ? a.weight->cols() : a.x.cols();
  const int64_t rows = a.x.elements() / cols;
  const Tensor x = a.x.view(Shape(rows, cols));
  const Tensor out = a.out.view(Shape(rows, cols));
  const Tensor factor = temporary(b, Shape(rows));
  const Tensor factors = temporary(b, Shape(rows, cols));
  b.sum_squares_axis({.x = x, .axis = 1, .out = factor});
  b.scale({.x = factor, .s = 1.0F / static_cast<float>(cols), .out = factor});
  b.add_scalar({.x = factor, .s = a.eps, .out = factor});
  b.rsqrt_elem({.x = factor, .out = factor});
  b.broadcast_row_scalars({.t = factor, .out = factors});
  b.hadamard({.a = x, .b = factors, .out = out});
  if (a.weight != nullptr) b.hadamard({.a = out, .b = vector_of(b, *a.weight), .out = out});
}

void layer_norm(Backend& b, const LayerNormArgs& a) {
  const int64_t rows = a.x.rows();
  const int64_t cols = a.x.cols();
  const Tensor share = temporary(b, Shape(cols, 1));
  const Tensor factor = temporary(b, Shape(rows));
  const Tensor wide = temporary(b, Shape(rows, cols));
  // Minus the mean, as a product with -1 / cols in every row.
  b.fill_strict_upper_tri({.x = share, .value = -1.0F / static_cast<float>(cols), .offset = -cols});
  b.matmul({.a = a.x, .b = share, .out = factor.view(Shape(rows, 1))});
  b.broadcast_row_scalars({.t = factor, .out = wide});
  b.add({.a = a.x, .b = wide, .out = a.out});
  b.sum_squares_axis({.x = a.out, .axis = 1, .out = factor});
  b.scale({.x = factor, .s = 1.0F / static_cast<float>(cols), .out = factor});
  b.add_scalar({.x = factor, .s = a.eps, .out = factor});
  b.rsqrt_elem({.x = factor, .out = factor});
  b.broadcast_row_scalars({.t = factor, .out = wide});
  b.hadamard({.a = a.out, .b = wide, .out = a.out});
  b.hadamard({.a = a.out, .b = vector_of(b, *a.weight), .out = a.out});
  if (a.bias != nullptr) b.add({.a = a.out, .b = vector_of(b, *a.bias), .out = a.out});
}

void linear(Backend& b, const LinearArgs& a) {
  Tensor x = a.x;
  if (!a.rows.empty()) {
    // Row subset: copied one row at a time; the ids are host-visible wherever default bodies run.
    x = temporary(b, Shape(a.rows.elements(), a.x.cols()));
    for (int64_t r = 0; r < a.rows.elements(); ++r) {
      b.copy_row_2d({.x = a.x, .row = a.rows.as<int32_t>()[r], .out = x.row_range(r, 1).view(Shape(a.x.cols()))});
    }
  }
  if (a.epilogue == Epilogue::swiglu) {
    const Tensor gate = temporary(b, a.out[0].shape);
    const Tensor up = temporary(b, a.out[0].shape);
    multiply(b, x, *a.w[0], gate);
    multiply(b, x, *a.w[1], up);
    b.silu({.x = gate, .out = gate});
    b.hadamard({.a = gate, .b = up, .out = a.out[0]});
    return;
  }
  for (int i = 0; i < LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) {
    // The residual may be the output itself, so the product is made beside it.
    const bool apart = !a.residual.empty();
    const Tensor product = apart ? temporary(b, a.out[i].shape) : a.out[i];
    multiply(b, x, *a.w[i], product);
    if (a.bias[i] != nullptr) b.add({.a = product, .b = vector_of(b, *a.bias[i]), .out = product});
    if (a.post_norm != nullptr) b.rms_norm({.x = product, .weight = a.post_norm, .eps = a.eps, .out = product});
    if (a.residual_scale != 1) b.scale({.x = product, .s = a.residual_scale, .out = product});
    if (apart) b.add({.a = product, .b = a.residual, .out = a.out[i]});
    if (a.out_scale != 1) b.scale({.x = a.out[i], .s = a.out_scale, .out = a.out[i]});
  }
}

void qkv_rope_store(Backend& b, const QkvRopeStoreArgs& a) {
  const int64_t tokens = a.x.rows();
  Tensor h = a.x;
  if (a.norm != nullptr) {
    h = temporary(b, a.x.shape);
    b.rms_norm({.x = a.x, .weight = a.norm, .eps = a.eps, .out = h});
  }
  const bool stores = a.w[1] != nullptr;
  const Tensor k = stores ? temporary(b, Shape(tokens, a.w[1]->rows())) : Tensor{};
  const Tensor v = stores ? temporary(b, Shape(tokens, int64_t{a.kv.kv_heads} * a.kv.value_dim())) : Tensor{};
  LinearArgs projections{.x = h};
  for (int i = 0; i < 3; ++i) {
    projections.w[i] = a.w[i];
    projections.bias[i] = a.bias[i];
  }
  projections.out[0] = a.q;
  projections.out[1] = k;
  projections.out[2] = v;
  b.linear(projections);
  if (a.w_gate != nullptr) b.linear({.x = h, .w = {a.w_gate}, .out = {a.gate}});

  const Tensor positions = batch_tensor(a.batch.pos, tokens);
  RopeParams q_rope = a.rope;
  if (!a.q_rope.empty()) q_rope.table = a.q_rope;
  if (a.q_norm != nullptr) b.rms_norm({.x = a.q, .weight = a.q_norm, .eps = a.eps, .out = a.q});
  b.apply_rope({.x = a.q, .positions = positions, .head_dim = a.kv.head_dim, .rope = q_rope});
  if (!stores) return;
  if (a.w[2] == nullptr) b.reshape_data({.x = k, .out = v});
  if (a.k_norm != nullptr) b.rms_norm({.x = k, .weight = a.k_norm, .eps = a.eps, .out = k});
  if (a.v_norm) {
    const Tensor heads = v.view(Shape(tokens * a.kv.kv_heads, a.kv.value_dim()));
    b.rms_norm({.x = heads, .eps = a.eps, .out = heads});
  }
  b.apply_rope({.x = k, .positions = positions, .head_dim = a.kv.head_dim, .rope = a.rope});
  b.kv_store({.k = k, .v = v, .kv = a.kv, .batch = a.batch});
}

namespace {

// -inf where a query does not see the key: query row r is at position len - queries + r, column c is position c.
void mask(Backend& b, const AttentionArgs& a, const Tensor& scores) {
  const int64_t first = scores.cols() - scores.rows();
  const int64_t back = a.causal ? a.window - 1 : a.window / 2;
  const int64_t ahead = a.causal ? 0 : a.window / 2;
  if (a.causal || a.window != 0) {
    b.fill_strict_upper_tri({.x = scores, .value = -INFINITY, .offset = first + ahead});
  }
  if (a.window != 0) b.fill_strict_lower_tri({.x = scores, .value = -INFINITY, .offset = first - back});
}

// The softmax of scores with a sink: one more column, to which no value belongs.
void softmax_with_sink(Backend& b, const Tensor& scores, const Tensor& sink, const Tensor& memory) {
  const int64_t rows = scores.rows();
  const Tensor wide = memory.view(Shape(rows, scores.cols() + 1));
  const Tensor column{memory.f32() + wide.elements(), Shape(rows, 1)};
  b.repeat_row_as_matrix({.x = sink, .out = column});
  b.copy_2d_into_cols({.src = scores, .col_offset = 0, .dst = wide});
  b.copy_2d_into_cols({.src = column, .col_offset = scores.cols(), .dst = wide});
  b.softmax_rows({.x = wide, .out = wide});
  b.copy_2d_from_cols({.x = wide, .col_offset = 0, .out = scores});
}

// out *= activation(gate), with a gate per element or per head.
void gate_output(Backend& b, const AttentionArgs& a) {
  Tensor gate = a.gate;
  if (gate.elements() != a.out.elements()) {
    const Tensor heads = temporary(b, Shape(gate.elements(), a.kv.value_dim()));
    b.broadcast_row_scalars({.t = gate.view(Shape(gate.elements())), .out = heads});
    gate = heads.view(a.out.shape);
  }
  b.activate({.x = gate, .factor = a.out, .activation = a.gate_activation, .out = a.out});
}

}  // namespace

// Per sequence and head: softmax(q k^T * scale, masked) v, over the whole score matrix at once.
void attention(Backend& b, const AttentionArgs& a) {
  const int64_t d = a.kv.head_dim;
  const int64_t value_dim = a.kv.value_dim();
  const int64_t q_heads = a.q.cols() / d;
  const int64_t group = q_heads / a.kv.kv_heads;
  int64_t most_queries = 0;
  int64_t longest = 0;
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    most_queries = std::max<int64_t>(most_queries, a.batch.q_begin[s + 1] - a.batch.q_begin[s]);
    longest = std::max<int64_t>(longest, a.batch.kv_len[s]);
  }
  const Tensor keys = temporary(b, Shape(longest, d));
  const Tensor keys_t = temporary(b, Shape(d, longest));
  const Tensor values = temporary(b, Shape(longest, value_dim));
  const Tensor q = temporary(b, Shape(most_queries, d));
  const Tensor scores = temporary(b, Shape(most_queries, longest));
  const Tensor result = temporary(b, Shape(most_queries, value_dim));
  const Tensor sinks = a.sinks != nullptr ? vector_of(b, *a.sinks) : Tensor{};
  const Tensor with_sink = a.sinks != nullptr ? temporary(b, Shape(most_queries, longest + 2)) : Tensor{};
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t first = a.batch.q_begin[s];
    const int64_t queries = a.batch.q_begin[s + 1] - first;
    const int64_t len = a.batch.kv_len[s];
    if (queries == 0) continue;
    const Tensor q_rows = a.q.row_range(first, queries);
    const Tensor out_rows = a.out.row_range(first, queries);
    for (int32_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head) {
      const Tensor k = keys.view(Shape(len, d));
      const Tensor kt = keys_t.view(Shape(d, len));
      const Tensor v = values.view(Shape(len, value_dim));
      b.kv_load({.kv = a.kv, .batch = a.batch, .sequence = s, .head = kv_head, .values = false, .out = k});
      b.kv_load({.kv = a.kv, .batch = a.batch, .sequence = s, .head = kv_head, .values = true, .out = v});
      b.transpose_2d({.x = k, .out = kt});
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Tensor qh = q.view(Shape(queries, d));
        const Tensor p = scores.view(Shape(queries, len));
        const Tensor oh = result.view(Shape(queries, value_dim));
        b.copy_2d_from_cols({.x = q_rows, .col_offset = head * d, .out = qh});
        b.matmul({.a = qh, .b = kt, .out = p});
        b.scale({.x = p, .s = a.scale, .out = p});
        if (a.softcap != 0) b.soft_cap({.x = p, .cap = a.softcap, .out = p});
        mask(b, a, p);
        if (sinks.empty()) {
          b.softmax_rows({.x = p, .out = p});
        } else {
          softmax_with_sink(b, p, {sinks.f32() + head, Shape(1)}, with_sink);
        }
        b.matmul({.a = p, .b = v, .out = oh});
        b.copy_2d_into_cols({.src = oh, .col_offset = head * value_dim, .dst = out_rows});
      }
    }
  }
  if (!a.gate.empty()) gate_output(b, a);
}

namespace {

// f(gate(h)) * up(h), or f(up(h)), of any activation and with biases.
void activated_products(Backend& b, const GatedMlpArgs& a, const Tensor& h, const Tensor& out) {
  const Tensor up = temporary(b, out.shape);
  if (a.gate == nullptr) {
    b.linear({.x = h, .w = {a.up}, .bias = {a.bias[1]}, .out = {up}});
    b.activate({.x = up, .activation = a.activation, .out = out});
    return;
  }
  const Tensor gate = temporary(b, out.shape);
  b.linear({.x = h, .w = {a.gate, a.up}, .bias = {a.bias[0], a.bias[1]}, .out = {gate, up}});
  b.activate({.x = gate, .factor = up, .activation = a.activation, .out = out});
}

}  // namespace

void gated_mlp(Backend& b, const GatedMlpArgs& a) {
  Tensor h = a.x;
  if (a.norm != nullptr) {
    h = temporary(b, a.x.shape);
    b.rms_norm({.x = a.x, .weight = a.norm, .eps = a.eps, .out = h});
  }
  const Tensor activated = temporary(b, Shape(a.x.rows(), a.up->rows()));
  const bool biased = a.bias[0] != nullptr || a.bias[1] != nullptr;
  if (a.activation == Activation::silu && a.gate != nullptr && !biased) {
    b.linear({.x = h, .w = {a.gate, a.up}, .epilogue = Epilogue::swiglu, .out = {activated}});
  } else {
    activated_products(b, a, h, activated);
  }
  b.linear({.x = activated,
            .w = {a.down},
            .bias = {a.bias[2]},
            .residual = a.residual,
            .post_norm = a.post_norm,
            .eps = a.eps,
            .residual_scale = a.residual_scale,
            .out_scale = a.out_scale,
            .out = {a.out}});
}

void logits(Backend& b, const LogitsArgs& a) {
  const Tensor h = temporary(b, a.x.shape);
  b.rms_norm({.x = a.x, .weight = a.norm, .eps = a.eps, .out = h});
  LinearArgs head{.x = h, .rows = a.rows};
  head.w[0] = a.head;
  head.out[0] = a.out;
  b.linear(head);
  if (a.scale != 1) b.scale({.x = a.out, .s = a.scale, .out = a.out});
  if (a.softcap != 0) b.soft_cap({.x = a.out, .cap = a.softcap, .out = a.out});
}

// Not a composition: a draw is defined by RowSampler, on the host.
void sample(Backend& b, const SampleArgs& a) {
  const int64_t vocabulary = a.logits.cols();
  auto* memory = static_cast<std::byte*>(b.scratch(static_cast<size_t>(RowSampler::memory_bytes(vocabulary))));
  auto* candidates = static_cast<std::byte*>(b.scratch(static_cast<size_t>(RowSampler::candidate_bytes(vocabulary))));
  b.synchronize();
  for (int64_t r = 0; r < a.logits.rows(); ++r) RowSampler(a, r, memory, candidates).run();
}

void all_reduce(Backend& /*b*/, const AllReduceArgs& /*a*/) {}
void pass_on(Backend& /*b*/, const PassOnArgs& /*a*/) {}
void all_gather(Backend& b, const AllGatherArgs& a) {
  b.copy_contiguous_into({.x = a.x, .start = 0, .dst = a.out});
}

}  // namespace inferno::fused_defaults
