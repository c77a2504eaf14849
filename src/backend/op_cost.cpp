#include "backend/op_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace inferno {
namespace {

double as_double(int64_t value) {
  return static_cast<double>(value);
}

double matrix_bytes(const Weight* w) {
  return w == nullptr ? 0 : as_double(w->rows() * row_bytes(w->dtype(), w->cols()));
}

double product(double tokens, const Weight* w) {
  return w == nullptr ? 0 : 2 * tokens * as_double(w->rows()) * as_double(w->cols());
}

// A key and a value of one head.
int64_t both_row_bytes(const KvLayerView& view) {
  return view.row_bytes() + (view.v_in_k ? 0 : view.values().row_bytes());
}

// An array of the batch in host memory; copied there only when the host cannot see it.
class HostInts {
 public:
  HostInts(const int32_t* data, int32_t count, Backend& backend) : data_(data), count_(count) {
    if (backend.host_visible() || count == 0) return;
    copy_.resize(static_cast<size_t>(count));
    backend.download(copy_.data(), data, copy_.size() * sizeof(int32_t));
    data_ = copy_.data();
  }
  [[nodiscard]] const int32_t* begin() const { return data_; }
  [[nodiscard]] const int32_t* end() const { return data_ + count_; }

 private:
  const int32_t* data_;
  int32_t count_;
  std::vector<int32_t> copy_;
};

// All tensors and weights once, stored cache rows once; what most ops cost.
struct Sum {
  OpCost cost;
  KvLayerView stored;

  void operator()(FieldTag /*tag*/, std::string_view /*name*/, const Tensor& t) {
    if (t.data != nullptr) cost.activation_bytes += as_double(t.bytes());
  }
  void operator()(FieldTag /*tag*/, std::string_view /*name*/, const Weight* const& w) {
    cost.weight_bytes += matrix_bytes(w);
    if (w != nullptr && w->shape().rank > 1) cost.multiply = multiply_of(w->dtype());
  }
  void operator()(FieldTag tag, std::string_view /*name*/, const KvLayerView& view) {
    if (tag == FieldTag::kv_out) stored = view;
  }
  void operator()(FieldTag /*tag*/, std::string_view /*name*/, const StepBatch& b) {
    if (stored.k != nullptr) cost.kv_bytes += as_double(int64_t{b.tokens} * stored.kv_heads * both_row_bytes(stored));
  }
  template <typename T>
  void operator()(FieldTag /*tag*/, std::string_view /*name*/, const T& /*attribute*/) {}
};

// Operations of ops that touch each element of their output once or a few times.
template <typename Args>
void refine(const Args& args, OpCost& cost, Backend& /*backend*/) {
  if constexpr (requires { args.out.elements(); }) {
    cost.operations = as_double(args.out.elements());
  } else if constexpr (requires { args.x.elements(); }) {
    cost.operations = as_double(args.x.elements());
  }
}

void refine(const MatmulArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.operations = 2 * as_double(a.out.elements()) * as_double(a.a.cols());
}

void refine(const GatherRowsArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.weight_bytes = as_double(a.out.rows() * row_bytes(a.table->dtype(), a.table->cols()));
}

void refine(const EmbedArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.weight_bytes = as_double(a.out.rows() * row_bytes(a.table->dtype(), a.table->cols()));
}

void refine(const KvLoadArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.kv_bytes = as_double(a.out.rows() * (a.values ? a.kv.values() : a.kv).row_bytes());
}

void refine(const ApplyRopeArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes = as_double(2 * a.x.bytes() + a.x.rows() * a.rope.rotated_dims * 4);
  cost.operations = 3 * as_double(a.x.elements());
}

void refine(const ApplyRopeSingleRowArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes = as_double(2 * a.x.bytes() + a.rope.rotated_dims * 4);
  cost.operations = 3 * as_double(a.x.elements());
}

void refine(const RmsNormArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.operations = 4 * as_double(a.x.elements());
}

void refine(const LayerNormArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.operations = 7 * as_double(a.x.elements());
}

void refine(const LinearArgs& a, OpCost& cost, Backend& /*backend*/) {
  const double tokens = as_double(a.rows.empty() ? a.x.rows() : a.rows.elements());
  if (!a.rows.empty()) cost.activation_bytes -= as_double(a.x.bytes() - a.rows.elements() * a.x.cols() * 4);
  for (const Weight* w : a.w) cost.operations += product(tokens, w);
}

void refine(const QkvRopeStoreArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes = as_double(a.x.bytes() + a.q.bytes() + a.x.rows() * a.rope.rotated_dims * 4);
  for (const Weight* w : a.w) cost.operations += product(as_double(a.x.rows()), w);
}

void refine(const AttentionArgs& a, OpCost& cost, Backend& backend) {
  const HostInts lengths(a.batch.kv_len, a.batch.sequences, backend);
  const HostInts positions(a.batch.pos, a.batch.tokens, backend);
  for (const int32_t length : lengths) {
    const int32_t read = a.window == 0 ? length : std::min(length, a.window);
    cost.kv_bytes += as_double(int64_t{read} * a.kv.kv_heads * both_row_bytes(a.kv));
  }
  // A product with every key it sees, and one with every value.
  for (const int32_t position : positions) {
    const int32_t seen = a.window == 0 ? position + 1 : std::min(position + 1, a.window);
    cost.operations += 2.0 * seen * as_double(a.q.cols() + a.out.cols());
  }
  if (a.kv.dtype == DType::bf16) cost.multiply = Multiply::bf16;
}

void refine(const GatedMlpArgs& a, OpCost& cost, Backend& /*backend*/) {
  for (const Weight* w : {a.gate, a.up, a.down}) cost.operations += product(as_double(a.x.rows()), w);
}

// Of the experts' matrices those count that tokens reach which choose at random: of one token exactly its own.
void refine(const MoeMlpArgs& a, OpCost& cost, Backend& /*backend*/) {
  const double tokens = as_double(a.x.rows());
  const double experts = as_double(a.router->rows());
  const double share = a.routing.used / experts;
  const double unread = std::pow(1 - share, tokens);
  cost.operations = product(tokens, a.router);
  for (const Weight* w : {a.gate, a.up, a.down}) {
    cost.weight_bytes -= unread * matrix_bytes(w);
    cost.operations += share * product(tokens, w);
  }
}

// States are read and written once for each sequence of the step.
void count_states(const Tensor& states, const StepBatch& batch, OpCost& cost) {
  cost.activation_bytes -= as_double(states.bytes());
  cost.kv_bytes += 2 * as_double(batch.sequences * states.cols() * 4);
}

void refine(const ShortConvArgs& a, OpCost& cost, Backend& /*backend*/) {
  count_states(a.state, a.batch, cost);
  cost.operations = 2 * as_double(a.x.rows()) * as_double(a.weight->cols());
}

// Per element of a head's matrix: a product with k, the decay and the change, a product with q.
void refine(const DeltaNetArgs& a, OpCost& cost, Backend& /*backend*/) {
  count_states(a.state, a.batch, cost);
  cost.operations = 7 * as_double(a.z.elements()) * as_double(a.head_dim());
}

// Per element of a head's matrix: the decay and the change, a product with C.
void refine(const Mamba2Args& a, OpCost& cost, Backend& /*backend*/) {
  count_states(a.state, a.batch, cost);
  cost.operations = 5 * as_double(a.z.elements()) * as_double(a.state_size());
}

void refine(const LayerInputArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes -= as_double(a.x.rows() * (a.inputs.cols() - a.gate->rows()) * 4);
  cost.operations = product(as_double(a.x.rows()), a.gate) + product(as_double(a.x.rows()), a.proj);
}

void refine(const LatentStoreArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes =
      as_double(a.heads.bytes() + a.latent.bytes() + a.q.bytes() + a.heads.rows() * a.rope.rotated_dims * 4);
  cost.operations = product(as_double(a.heads.rows()), a.k_b);
}

void refine(const HeadLinearArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.operations = product(as_double(a.x.rows()), a.w);
}

void refine(const LogitsArgs& a, OpCost& cost, Backend& /*backend*/) {
  cost.activation_bytes = as_double(a.rows.elements() * a.x.cols() * 4 + a.out.bytes());
  cost.operations = product(as_double(a.rows.elements()), a.head);
}

void refine(const AllReduceArgs& /*a*/, OpCost& cost, Backend& /*backend*/) {
  cost = {};
}
void refine(const AllGatherArgs& /*a*/, OpCost& cost, Backend& /*backend*/) {
  cost = {};
}
void refine(const PassOnArgs& /*a*/, OpCost& cost, Backend& /*backend*/) {
  cost = {};
}

}  // namespace

std::string_view multiply_name(Multiply kind) {
  static constexpr std::array<std::string_view, kMultiplyKinds> kNames = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<size_t>(kind)];
}

Multiply multiply_of(DType weight) {
  if (is_quantized(weight)) return Multiply::int8;
  if (weight == DType::f16) return Multiply::f16;
  return weight == DType::bf16 ? Multiply::bf16 : Multiply::f32;
}

OpCost op_cost(const OpRecord& record, Backend& backend) {
  return record.visit([&](const auto& args) {
    Sum sum;
    std::decay_t<decltype(args)>::fields(args, sum);
    refine(args, sum.cost, backend);
    return sum.cost;
  });
}

}  // namespace inferno
