#include "verify/op_shapes.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "backend/op_fields.h"
#include "backend/sampling.h"

namespace inferno {
namespace {

// The most elements of a matrix that an op makes for itself, and the most positions a block table may describe: far
// more than any step has, and little enough to allocate.
constexpr int64_t kMaxElements = int64_t{1} << 28;
constexpr int64_t kMaxPositions = int64_t{1} << 20;
// Attention works in spans of 256 positions, each of whole pages.
constexpr int32_t kSpan = 256;

// ---- tensors and weights

void f32(const Tensor& t) {
  need(!t.empty() && t.dtype == DType::f32 && t.elements() > 0, "a tensor is missing or of a wrong type");
}
void f32(const Tensor& t, int64_t rows, int64_t cols) {
  f32(t);
  need(t.rows() == rows && t.cols() == cols, "shapes that do not fit each other");
}
void f32_of(const Tensor& t, int64_t elements) {
  f32(t);
  need(t.elements() == elements, "shapes that do not fit each other");
}
void same(const Tensor& x, const Tensor& out) {
  f32(x);
  f32_of(out, x.elements());
}
void i32_of(const Tensor& t, int64_t elements) {
  need(!t.empty() && t.dtype == DType::i32 && elements > 0 && t.elements() == elements, "indices of a wrong type");
}
// Indices, each 0 to limit - 1.
void indices(const Tensor& t, int64_t count, int64_t limit) {
  i32_of(t, count);
  const auto* ids = t.as<int32_t>();
  need(std::all_of(ids, ids + count, [&](int32_t id) { return id >= 0 && id < limit; }), "an index out of range");
}

void vector(const Weight* w, int64_t elements) {
  need(w != nullptr && w->shape().rank == 1 && w->shape().elements() == elements, "a vector that does not fit");
}
void vector_if_any(const Weight* w, int64_t elements) {
  if (w != nullptr) vector(w, elements);
}
void matrix(const Weight* w, int64_t cols) {
  need(w != nullptr && w->shape().rank == 2 && w->cols() == cols, "a matrix that does not fit");
}
void product(int64_t a, int64_t b) {
  need(a <= kMaxElements / b, "sizes beyond any model's");
}

// Several matrices in one weight.
void matrices(const Weight* w, int64_t count, int64_t rows, int64_t cols) {
  need(w != nullptr && w->shape() == Shape(count, rows, cols), "a matrix that does not fit");
}

// ---- the cache and the batch

void cache(const KvLayerView& kv) {
  need(kv.k != nullptr && kv.v != nullptr && kv.pages > 0 && kv.kv_heads > 0 && kv.head_dim > 0 && kv.v_head_dim >= 0,
       "a cache without rows");
  need(!kv.v_in_k || kv.value_dim() <= kv.head_dim, "values that do not fit their keys");
  need(kv.page_size > 0 && kSpan % kv.page_size == 0, "pages of an impossible size");
  const bool type =
      kv.dtype == DType::f32 || kv.dtype == DType::f16 || kv.dtype == DType::bf16 || kv.dtype == DType::q8_0;
  const int block = type ? dtype_info(kv.dtype).block_size : 1;
  need(type && kv.head_dim % block == 0 && kv.value_dim() % block == 0, "a cache of an impossible type");
}

void sequence(const StepBatch& b, const KvLayerView& kv, int32_t s) {
  const int32_t begin = b.q_begin[s];
  const int32_t end = b.q_begin[s + 1];
  need(begin >= 0 && begin <= end && end <= b.tokens, "a batch whose sequences do not fit its tokens");
  const int64_t length = b.kv_len[s];
  need(length >= end - begin && length <= int64_t{b.max_pages} * kv.page_size, "a sequence of an impossible length");
  for (int32_t t = begin; t < end; ++t) {
    need(b.seq_of_token[t] == s && b.pos[t] == length - (end - t), "tokens out of place");
  }
  const int32_t* table = b.block_table + int64_t{s} * b.max_pages;
  const std::set<int32_t> pages(table, table + pages_of(b.kv_len[s], kv.page_size));
  need(pages.empty() || (*pages.begin() >= 0 && *pages.rbegin() < kv.pages), "a page out of range");
  need(static_cast<int32_t>(pages.size()) == pages_of(b.kv_len[s], kv.page_size), "a page used twice");
}

// Returns the last position.
int64_t batch(const StepBatch& b, const KvLayerView& kv, int64_t tokens) {
  cache(kv);
  need(b.tokens == tokens && b.sequences > 0 && b.max_pages > 0, "a batch that does not fit");
  need(int64_t{b.max_pages} * kv.page_size <= kMaxPositions, "sizes beyond any model's");
  need(b.pos != nullptr && b.seq_of_token != nullptr && b.q_begin != nullptr && b.kv_len != nullptr &&
           b.slot != nullptr && b.block_table != nullptr,
       "a batch without its arrays");
  need(b.q_begin[0] == 0 && b.q_begin[b.sequences] == b.tokens, "a batch whose sequences do not fit its tokens");
  for (int32_t s = 0; s < b.sequences; ++s) sequence(b, kv, s);
  const int64_t slots = int64_t{kv.pages} * kv.page_size;
  need(std::all_of(b.slot, b.slot + tokens, [&](int32_t slot) { return slot >= -1 && slot < slots; }),
       "a slot out of range");
  return *std::max_element(b.pos, b.pos + tokens);
}

void rope(const RopeParams& r, int64_t head_dim, int64_t last_position) {
  need(r.pairing == RopePairing::half_split || r.pairing == RopePairing::interleaved, "an unknown pairing");
  if (r.table.empty() && r.rotated_dims == 0) return;  // nothing rotates
  need(r.rotated_dims > 0 && r.rotated_dims % 2 == 0 && r.rotated_dims <= head_dim, "a rotation that does not fit");
  f32(r.table);
  need(r.table.shape.rank == 3 && r.table.shape[1] * 2 == r.rotated_dims && r.table.shape[2] == 2 &&
           r.table.shape[0] > last_position,
       "a table of rotations that is too short");
}

// Backends look these up in tables.
void known(Activation f) {
  need(static_cast<int>(f) < kActivations, "an unknown activation");
}

void check(const Routing& r, int64_t experts) {
  need(static_cast<int>(r.score) < kRouterScores, "an unknown score of experts");
  need(r.used > 0 && r.used <= experts, "more experts in use than there are");
  need(r.groups > 0 && r.groups <= kMaxExpertGroups && experts % r.groups == 0 && r.groups_used > 0 &&
           r.groups_used <= r.groups && r.used <= experts / r.groups * r.groups_used,
       "groups that do not fit the experts");
}

// ---- primitives

// An op without a rule of its own below.
template <typename Args>
void check(const Args& /*args*/) {
  throw std::runtime_error("an op whose arguments nobody can check");
}

void check(const AddArgs& a) {
  same(a.a, a.out);
  f32_of(a.b, a.b.elements() == a.a.elements() ? a.a.elements() : a.a.cols());
}
void check(const HadamardArgs& a) {
  check(AddArgs{a.a, a.b, a.out});
}
void check(const SiluArgs& a) {
  same(a.x, a.out);
}
void check(const ActivateArgs& a) {
  same(a.x, a.out);
  if (!a.factor.empty()) same(a.factor, a.out);
  known(a.activation);
}
void check(const SoftCapArgs& a) {
  same(a.x, a.out);
}
void check(const ScaleArgs& a) {
  same(a.x, a.out);
}
void check(const AddScalarArgs& a) {
  same(a.x, a.out);
}
void check(const RsqrtElemArgs& a) {
  same(a.x, a.out);
}
void check(const SumSquaresAxisArgs& a) {
  need(a.axis == 0 || a.axis == 1, "an unknown axis");
  f32(a.x);
  f32_of(a.out, a.axis == 1 ? a.x.rows() : a.x.cols());
}
void check(const BroadcastRowScalarsArgs& a) {
  f32(a.out);
  f32_of(a.t, a.out.rows());
}
void check(const Transpose2dArgs& a) {
  f32(a.x);
  f32(a.out, a.x.cols(), a.x.rows());
}
void check(const SoftmaxRowsArgs& a) {
  same(a.x, a.out);
}
void check(const ReshapeDataArgs& a) {
  same(a.x, a.out);
}
void check(const MatmulArgs& a) {
  f32(a.a);
  f32(a.b);
  need(a.a.cols() == a.b.rows(), "shapes that do not fit each other");
  f32(a.out, a.a.rows(), a.b.cols());
}
void check(const GatherRowsArgs& a) {
  f32(a.out);
  matrix(a.table, a.out.cols());
  if (!a.indices.empty()) return indices(a.indices, a.out.rows(), a.table->rows());
  need(a.first_row >= 0 && a.out.rows() <= a.table->rows() && a.first_row <= a.table->rows() - a.out.rows(),
       "an index out of range");
}
void check(const FillStrictUpperTriArgs& a) {
  f32(a.x);
  need(a.offset >= -kMaxElements && a.offset <= kMaxElements, "an index out of range");
}
void check(const FillStrictLowerTriArgs& a) {
  check(FillStrictUpperTriArgs{a.x, a.value, a.offset});
}
void check(const Copy2dFromColsArgs& a) {
  f32(a.x);
  f32(a.out, a.x.rows(), a.out.cols());
  need(a.col_offset >= 0 && a.out.cols() <= a.x.cols() && a.col_offset <= a.x.cols() - a.out.cols(),
       "an index out of range");
}
void check(const Copy2dIntoColsArgs& a) {
  check(Copy2dFromColsArgs{a.dst, a.col_offset, a.src});
}
void check(const RepeatRowAsMatrixArgs& a) {
  f32(a.out);
  a.x.empty() ? vector(a.weight_row, a.out.cols()) : f32_of(a.x, a.out.cols());
}
void check(const ApplyRopeArgs& a) {
  f32(a.x);
  need(a.head_dim > 0 && a.x.cols() % a.head_dim == 0, "heads that do not fit");
  indices(a.positions, a.x.rows(), kMaxPositions);
  const auto* positions = a.positions.as<int32_t>();
  rope(a.rope, a.head_dim, *std::max_element(positions, positions + a.x.rows()));
}
void check(const ApplyRopeSingleRowArgs& a) {
  f32(a.x);
  need(a.head_dim > 0 && a.x.elements() % a.head_dim == 0 && a.position >= 0, "heads that do not fit");
  rope(a.rope, a.head_dim, a.position);
}
void check(const ConcatDim0Args& a) {
  f32(a.a);
  f32(a.b);
  f32(a.out, a.a.rows() + a.b.rows(), a.a.cols());
  need(a.b.cols() == a.a.cols(), "shapes that do not fit each other");
}
void check(const CopyRow2dArgs& a) {
  f32(a.x);
  f32_of(a.out, a.x.cols());
  need(a.row >= 0 && a.row < a.x.rows(), "an index out of range");
}
void check(const CopyContiguousIntoArgs& a) {
  f32(a.x);
  f32(a.dst);
  need(a.start >= 0 && a.x.elements() <= a.dst.elements() && a.start <= a.dst.elements() - a.x.elements(),
       "an index out of range");
}
void check(const ArgmaxWithProbArgs& a) {
  f32(a.x);
  i32_of(a.index, a.x.rows());
  f32_of(a.prob, a.x.rows());
}
void check(const KvStoreArgs& a) {
  f32(a.k);
  (void)batch(a.batch, a.kv, a.k.rows());
  need(a.k.cols() == int64_t{a.kv.kv_heads} * a.kv.head_dim, "heads that do not fit");
  if (!a.kv.v_in_k) f32(a.v, a.k.rows(), int64_t{a.kv.kv_heads} * a.kv.value_dim());
}
void check(const KvLoadArgs& a) {
  (void)batch(a.batch, a.kv, a.batch.tokens);
  need(a.sequence >= 0 && a.sequence < a.batch.sequences && a.head >= 0 && a.head < a.kv.kv_heads,
       "an index out of range");
  f32(a.out, a.out.rows(), a.values ? a.kv.value_dim() : a.kv.head_dim);
  need(a.out.rows() <= a.batch.kv_len[a.sequence], "an index out of range");
}

void check(const RouteArgs& a) {
  same(a.logits, a.out);
  if (!a.selection_bias.empty()) f32_of(a.selection_bias, a.logits.cols());
  check(a.routing, a.logits.cols());
}

// ---- fused ops

void check(const EmbedArgs& a) {
  need(!a.ids.empty(), "indices are missing");
  check(GatherRowsArgs{.table = a.table, .indices = a.ids, .out = a.out});
}
void check(const RmsNormArgs& a) {
  same(a.x, a.out);
  if (a.weight == nullptr) return;
  need(a.x.elements() % a.weight->cols() == 0, "a vector that does not fit");
  vector(a.weight, a.weight->cols());
}
void check(const LayerNormArgs& a) {
  same(a.x, a.out);
  need(a.weight != nullptr, "a weight is missing");
  vector(a.weight, a.x.cols());
  if (a.bias != nullptr) vector(a.bias, a.x.cols());
}
void check(const LinearArgs& a) {
  f32(a.x);
  if (!a.rows.empty()) indices(a.rows, a.rows.elements(), a.x.rows());
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  product(tokens, a.x.cols());
  const bool swiglu = a.epilogue == Epilogue::swiglu;
  need(swiglu || a.epilogue == Epilogue::none, "an unknown epilogue");
  matrix(a.w[0], a.x.cols());
  for (int i = 0; i < LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) {
    matrix(a.w[i], a.x.cols());
    product(tokens, a.w[i]->rows());
    vector_if_any(a.bias[i], a.w[i]->rows());
    if (i == 0 || !swiglu) f32(a.out[i], tokens, a.w[i]->rows());
  }
  if (swiglu) {
    need(a.w[1] != nullptr && a.w[2] == nullptr && a.w[0]->rows() == a.w[1]->rows() && a.residual.empty(),
         "two matrices are needed that fit each other");
  }
  need(a.w[1] != nullptr || a.w[2] == nullptr, "a matrix is missing");
  if (!a.residual.empty()) {
    need(a.w[1] == nullptr, "a residual of several matrices");
    f32(a.residual, tokens, a.w[0]->rows());
  }
  need(a.w[1] == nullptr || (a.post_norm == nullptr && a.residual_scale == 1 && a.out_scale == 1),
       "a norm of several matrices");
  if (a.post_norm != nullptr) {
    need(a.w[0]->rows() % a.post_norm->cols() == 0, "a vector that does not fit");
    vector(a.post_norm, a.post_norm->cols());
  }
}
// A norm of each head, or of the whole row.
void norm_of_heads(const Weight* norm, int64_t head_dim, int64_t width) {
  if (norm != nullptr) vector(norm, norm->cols() == head_dim ? head_dim : width);
}
// The products there are, each with its bias; those left out have none.
void check_projections(const QkvRopeStoreArgs& a) {
  need(a.w[0] != nullptr && (a.w[1] != nullptr || a.w[2] == nullptr), "a matrix is missing");
  const int64_t kv_width = int64_t{a.kv.kv_heads} * a.kv.head_dim;
  const int64_t value_width = int64_t{a.kv.kv_heads} * a.kv.value_dim();
  for (int i = 0; i < 3; ++i) {
    if (a.w[i] == nullptr) {
      need(a.bias[i] == nullptr, "a bias of nothing");
      continue;
    }
    matrix(a.w[i], a.x.cols());
    product(a.x.rows(), a.w[i]->rows());
    vector_if_any(a.bias[i], a.w[i]->rows());
  }
  need(a.w[0]->rows() % kv_width == 0, "heads that do not fit");
  need(a.w[1] == nullptr || a.w[1]->rows() == kv_width, "heads that do not fit");
  need(a.w[1] == nullptr || (a.w[2] != nullptr ? a.w[2]->rows() : kv_width) == value_width, "heads that do not fit");
}
void check(const QkvRopeStoreArgs& a) {
  f32(a.x);
  const int64_t last = batch(a.batch, a.kv, a.x.rows());
  vector_if_any(a.norm, a.x.cols());
  check_projections(a);
  f32(a.q, a.x.rows(), a.w[0]->rows());
  norm_of_heads(a.q_norm, a.kv.head_dim, a.w[0]->rows());
  norm_of_heads(a.k_norm, a.kv.head_dim, int64_t{a.kv.kv_heads} * a.kv.head_dim);
  rope(a.rope, a.kv.head_dim, last);
  if (!a.q_rope.empty()) {
    RopeParams q_rope = a.rope;
    q_rope.table = a.q_rope;
    rope(q_rope, a.kv.head_dim, last);
  }
  need((a.w_gate == nullptr) == a.gate.empty(), "a gate without its matrix");
  if (a.w_gate != nullptr) {
    matrix(a.w_gate, a.x.cols());
    product(a.x.rows(), a.w_gate->rows());
    f32(a.gate, a.x.rows(), a.w_gate->rows());
  }
}
void check(const AttentionArgs& a) {
  f32(a.q);
  const int64_t last = batch(a.batch, a.kv, a.q.rows());
  const int64_t kv_width = int64_t{a.kv.kv_heads} * a.kv.head_dim;
  need(a.q.cols() % kv_width == 0 && a.q.cols() / kv_width <= kMaxQueryGroup, "heads that do not fit");
  product(a.q.rows(), last + 2);  // scores
  const int64_t q_heads = a.q.cols() / a.kv.head_dim;
  f32(a.out, a.q.rows(), q_heads * a.kv.value_dim());
  need(a.window >= 0, "a window of an impossible size");
  vector_if_any(a.sinks, q_heads);
  known(a.gate_activation);
  if (!a.gate.empty()) f32(a.gate, a.q.rows(), a.gate.cols() == q_heads ? q_heads : a.out.cols());
}
void check(const GatedMlpArgs& a) {
  f32(a.x);
  vector_if_any(a.norm, a.x.cols());
  matrix(a.up, a.x.cols());
  matrix(a.down, a.up->rows());
  product(a.x.rows(), a.up->rows());
  if (a.gate != nullptr) {
    matrix(a.gate, a.x.cols());
    need(a.up->rows() == a.gate->rows(), "two matrices are needed that fit each other");
  }
  need(a.gate != nullptr || a.bias[0] == nullptr, "a bias of nothing");
  vector_if_any(a.bias[0], a.up->rows());
  vector_if_any(a.bias[1], a.up->rows());
  vector_if_any(a.bias[2], a.down->rows());
  vector_if_any(a.post_norm, a.down->rows());
  known(a.activation);
  f32(a.out, a.x.rows(), a.down->rows());
  if (!a.residual.empty()) f32(a.residual, a.out.rows(), a.out.cols());
}
void check(const MoeMlpArgs& a) {
  f32(a.x);
  vector_if_any(a.norm, a.x.cols());
  matrix(a.router, a.x.cols());
  const int64_t experts = a.router->rows();
  check(a.routing, experts);
  vector_if_any(a.router_bias, experts);
  vector_if_any(a.selection_bias, experts);
  vector_if_any(a.router_norm, a.x.cols());
  vector_if_any(a.expert_scale, experts);
  vector_if_any(a.experts_norm, a.x.cols());
  need(a.up != nullptr && a.up->shape().rank == 3, "a matrix that does not fit");
  const int64_t ffn = a.up->shape()[1];
  if (a.gate != nullptr) matrices(a.gate, experts, ffn, a.x.cols());
  need(a.gate != nullptr || a.bias[0] == nullptr, "a bias of nothing");
  matrices(a.up, experts, ffn, a.x.cols());
  matrices(a.down, experts, a.x.cols(), ffn);
  product(a.x.rows() * a.routing.used, std::max(ffn, a.x.cols()));
  vector_if_any(a.bias[0], experts * ffn);
  vector_if_any(a.bias[1], experts * ffn);
  vector_if_any(a.bias[2], experts * a.x.cols());
  known(a.activation);
  if (!a.shared.empty()) same(a.shared, a.x);
  need(!a.shared.empty() || a.shared_gate == nullptr, "a gate of nothing");
  vector_if_any(a.shared_gate, a.x.cols());
  vector_if_any(a.post_norm, a.x.cols());
  f32(a.out, a.x.rows(), a.x.cols());
  if (!a.residual.empty()) f32(a.residual, a.out.rows(), a.out.cols());
}
// One state for each sequence of the batch; positions follow each other.
void states(const Tensor& state, const StepBatch& b, int64_t tokens, int64_t floats) {
  need(floats > 0, "shapes that do not fit each other");
  f32(state);
  need(state.shape.rank == 2 && state.cols() == floats, "shapes that do not fit each other");
  need(b.tokens == tokens && b.sequences > 0, "a batch that does not fit");
  need(b.pos != nullptr && b.q_begin != nullptr && b.state_slot != nullptr, "a batch without its arrays");
  need(b.q_begin[0] == 0 && b.q_begin[b.sequences] == b.tokens, "a batch whose sequences do not fit its tokens");
  std::set<int32_t> slots;
  for (int32_t s = 0; s < b.sequences; ++s) {
    const int32_t begin = b.q_begin[s];
    const int32_t end = b.q_begin[s + 1];
    need(begin >= 0 && begin <= end && end <= b.tokens, "a batch whose sequences do not fit its tokens");
    for (int32_t t = begin; t < end; ++t) {
      need(b.pos[t] >= 0 && b.pos[t] <= kMaxPositions && (t == begin || b.pos[t] == b.pos[t - 1] + 1),
           "tokens out of place");
    }
    need(b.state_slot[s] >= 0 && b.state_slot[s] < state.rows(), "a state out of range");
    need(slots.insert(b.state_slot[s]).second, "a state used twice");
  }
}
void check(const ShortConvArgs& a) {
  f32(a.x);
  const int64_t channels = a.x.cols();
  need(a.weight != nullptr && a.weight->shape().rank == 1 && a.weight->cols() % channels == 0,
       "a vector that does not fit");
  const int64_t taps = a.weight->cols() / channels;
  need(taps >= 2 && taps <= kMaxConvTaps, "a convolution of an impossible length");
  vector_if_any(a.bias, channels);
  if (!a.factor.empty()) f32(a.factor, a.x.rows(), channels);
  if (!a.gate.empty()) f32(a.gate, a.x.rows(), channels);
  f32(a.out, a.x.rows(), channels);
  states(a.state, a.batch, a.x.rows(), (taps - 1) * channels);
}
void check(const DeltaNetArgs& a) {
  f32(a.qkv);
  const int64_t tokens = a.qkv.rows();
  f32(a.beta);
  f32(a.alpha, tokens, a.beta.cols());
  f32(a.beta, tokens, a.beta.cols());
  f32(a.z);
  need(a.z.rows() == tokens && a.z.cols() % a.v_heads() == 0, "shapes that do not fit each other");
  const int64_t d = a.head_dim();
  need(d % 4 == 0, "heads of an impossible size");
  need(a.k_heads > 0 && a.v_heads() % a.k_heads == 0, "value heads that do not fit the key heads");
  need(a.qkv.cols() == (2 * int64_t{a.k_heads} + a.v_heads()) * d, "shapes that do not fit each other");
  product(a.v_heads() * d, d);
  vector(a.a, a.v_heads());
  vector(a.dt, a.v_heads());
  vector(a.norm, d);
  f32(a.out, tokens, a.z.cols());
  states(a.state, a.batch, tokens, a.v_heads() * d * d);
}
void check(const Mamba2Args& a) {
  f32(a.xbc);
  const int64_t tokens = a.xbc.rows();
  f32(a.dt);
  f32(a.dt, tokens, a.dt.cols());
  f32(a.z);
  need(a.z.rows() == tokens && a.z.cols() % a.heads() == 0, "shapes that do not fit each other");
  need(a.head_dim() % 4 == 0, "heads of an impossible size");
  need(a.groups > 0 && a.heads() % a.groups == 0, "heads that do not fit the groups");
  const int64_t rest = a.xbc.cols() - a.z.cols();
  need(rest > 0 && rest % (2 * int64_t{a.groups}) == 0, "shapes that do not fit each other");
  product(a.z.cols(), a.state_size());
  for (const Weight* w : {a.a, a.dt_bias, a.skip}) vector(w, a.heads());
  vector(a.norm, a.z.cols());
  f32(a.out, tokens, a.z.cols());
  states(a.state, a.batch, tokens, a.z.cols() * a.state_size());
}
void check(const LayerInputArgs& a) {
  f32(a.x);
  matrix(a.gate, a.x.cols());
  matrix(a.proj, a.gate->rows());
  product(a.x.rows(), a.gate->rows());
  need(a.proj->rows() == a.x.cols(), "a matrix that does not fit");
  vector(a.post_norm, a.x.cols());
  known(a.activation);
  f32(a.inputs, a.x.rows(), a.inputs.cols());
  need(a.first_column >= 0 && a.gate->rows() <= a.inputs.cols() && a.first_column <= a.inputs.cols() - a.gate->rows(),
       "an index out of range");
  f32(a.out, a.x.rows(), a.x.cols());
}
void check(const LatentStoreArgs& a) {
  f32(a.heads);
  const int64_t last = batch(a.batch, a.kv, a.heads.rows());
  need(a.k_b != nullptr && a.k_b->shape().rank == 3, "a matrix that does not fit");
  const int64_t heads = a.k_b->shape()[0];
  const int64_t latent = a.k_b->shape()[1];
  need(!a.rope.table.empty(), "a rotation that does not fit");
  rope(a.rope, a.rope.rotated_dims, last);
  const int64_t row = latent + a.rope.rotated_dims;
  need(a.kv.v_in_k && a.kv.kv_heads == 1 && a.kv.head_dim == row && a.kv.value_dim() == latent,
       "heads that do not fit");
  vector(a.norm, latent);
  product(a.heads.rows(), heads * row);
  f32(a.heads, a.heads.rows(), heads * (a.k_b->shape()[2] + a.rope.rotated_dims));
  f32(a.latent, a.heads.rows(), row);
  f32(a.q, a.heads.rows(), heads * row);
}
void check(const HeadLinearArgs& a) {
  f32(a.x);
  need(a.w != nullptr && a.w->shape().rank == 3, "a matrix that does not fit");
  const int64_t heads = a.w->shape()[0];
  product(a.x.rows(), heads * std::max(a.w->shape()[1], a.w->shape()[2]));
  f32(a.x, a.x.rows(), heads * a.w->shape()[2]);
  f32(a.out, a.x.rows(), heads * a.w->shape()[1]);
}
void check(const LogitsArgs& a) {
  f32(a.x);
  vector(a.norm, a.x.cols());
  matrix(a.head, a.x.cols());
  indices(a.rows, a.rows.elements(), a.x.rows());
  product(a.rows.elements(), a.head->rows());
  f32(a.out, a.rows.elements(), a.head->rows());
}

void check_row(const SampleRow& row, const SampleArgs& a) {
  check_sampling(row.settings);
  const int64_t vocabulary = a.logits.cols();
  const int64_t edits = a.edits.empty() ? 0 : a.edits.elements() * 4 / static_cast<int64_t>(sizeof(TokenEdit));
  need(row.edits_begin >= 0 && row.edits_count >= 0 && int64_t{row.edits_begin} + row.edits_count <= edits,
       "an index out of range");
  std::set<int32_t> ids;
  for (int32_t i = 0; i < row.edits_count; ++i) {
    const TokenEdit& edit = a.edits.as<TokenEdit>()[row.edits_begin + i];
    need(edit.id >= 0 && edit.id < vocabulary && edit.count >= 0 && ids.insert(edit.id).second,
         "an index out of range");
  }
  const int64_t masks = a.allowed.empty() ? 0 : a.allowed.elements() / bitset_words(vocabulary);
  need(row.allowed >= -1 && row.allowed < masks, "an index out of range");
  need(row.top_logprobs >= -1 && row.top_logprobs <= kMaxTopLogprobs, "too many log-probabilities");
  need(row.top_logprobs == -1 || !a.logprobs.empty(), "a tensor is missing or of a wrong type");
}
void check(const SampleArgs& a) {
  f32(a.logits);
  const int64_t rows = a.logits.rows();
  i32_of(a.rows, rows * static_cast<int64_t>(sizeof(SampleRow) / 4));
  if (!a.edits.empty()) {
    i32_of(a.edits, a.edits.elements());
    need(a.edits.elements() % static_cast<int64_t>(sizeof(TokenEdit) / 4) == 0, "shapes that do not fit each other");
  }
  if (!a.allowed.empty()) i32_of(a.allowed, a.allowed.elements());
  i32_of(a.out, rows);
  need(a.top_ids.empty() == a.logprobs.empty(), "a tensor is missing or of a wrong type");
  if (!a.logprobs.empty()) {
    i32_of(a.top_ids, rows * kLogprobColumns);
    f32_of(a.logprobs, rows * kLogprobColumns);
  }
  for (int64_t r = 0; r < rows; ++r) check_row(a.rows.as<SampleRow>()[r], a);
}
void check(const AllReduceArgs& a) {
  f32(a.x);
  need(a.wire == DType::f32 || a.wire == DType::bf16, "a sum is sent as f32 or bf16");
}
void check(const PassOnArgs& a) {
  f32(a.x);
  need(a.rows.empty(), "rows for another rank");
}
// Of one rank, which is all that can be replayed.
void check(const AllGatherArgs& a) {
  f32(a.x);
  f32_of(a.out, a.x.elements());
  i32_of(a.begins, 2);
  need(a.begins.as<int32_t>()[0] == 0 && a.begins.as<int32_t>()[1] == a.x.cols(), "columns of other ranks");
}

}  // namespace

void check_shapes(const OpRecord& record) {
  record.visit([](const auto& args) { check(args); });
}

}  // namespace inferno
