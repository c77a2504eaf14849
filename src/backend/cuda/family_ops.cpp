// OpRunner's ops with arguments that only some families have: products as ever, with simple kernels between them.
#include <algorithm>

#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"

namespace inferno::cuda {
namespace {

// Parts of a region begin at multiples of this.
constexpr int64_t kPartFloats = 64;

}  // namespace

// ---- what they share

const float* OpRunner::normed_rows(const Tensor& x, const Weight* norm, float eps) {
  if (norm == nullptr) return x.f32();
  auto* out = static_cast<float*>(region(Region::normed, x.bytes()));
  enqueue([&](const LaunchContext& c) {
    launch_norm_rows(
        c, {.x = x.f32(), .weight = vector_or_null(norm), .eps = eps, .rows = x.rows(), .cols = x.cols(), .out = out});
  });
  return out;
}

void OpRunner::project_and_finish(Linear job, const FinishRows& how) {
  FinishRows task = how;
  task.rows = job.tokens;
  task.cols = job.w[0]->rows();
  if (task.norm == nullptr) task.norm_cols = task.cols;
  auto* product = static_cast<float*>(region(Region::product, f32_rows_bytes(task.rows, task.cols)));
  job.residual = nullptr;
  job.out[0] = product;
  task.y = product;
  project(job);
  enqueue([&](const LaunchContext& c) { launch_finish_rows(c, task); });
}

// ---- ops

void OpRunner::run(const AddArgs& a) {
  enqueue([&](const LaunchContext& c) {
    launch_add(c, a.a.f32(), a.b.f32(), a.a.elements(), a.b.elements(), a.out.f32());
  });
}

void OpRunner::run(const LayerNormArgs& a) {
  enqueue([&](const LaunchContext& c) {
    launch_norm_rows(c, {.x = a.x.f32(),
                         .weight = vector_or_null(a.weight),
                         .bias = vector_or_null(a.bias),
                         .eps = a.eps,
                         .centers = true,
                         .rows = a.x.rows(),
                         .cols = a.x.cols(),
                         .out = a.out.f32()});
  });
}

void OpRunner::run_general(const LinearArgs& a) {
  project_and_finish(device::product_of(a), {.norm = vector_or_null(a.post_norm),
                                             .eps = a.eps,
                                             .norm_cols = a.post_norm != nullptr ? a.post_norm->cols() : 0,
                                             .residual = a.residual.f32(),
                                             .residual_scale = a.residual_scale,
                                             .out_scale = a.out_scale,
                                             .out = a.out[0].f32()});
}

const float* OpRunner::activated_products(const GatedMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t ffn = a.up->rows();
  const int64_t part = round_up(std::max<int64_t>(tokens, kMaxVectorTokens) * ffn, kPartFloats);
  auto* up = static_cast<float*>(region(Region::gate_up, 2 * part * size_of(DType::f32)));
  float* gate = up + part;
  Linear job = device::rows_of(a.x, a.norm, a.eps);
  if (a.gate != nullptr) job.add(a.gate, a.bias[0], gate);
  job.add(a.up, a.bias[1], up);
  project(job);
  ActivateRows task{.x = a.gate != nullptr ? gate : up,
                    .factor = a.gate != nullptr ? up : nullptr,
                    .activation = a.activation,
                    .rows = tokens,
                    .cols = ffn,
                    .x_stride = ffn,
                    .factor_stride = ffn,
                    .out = up};
  enqueue([&](const LaunchContext& c) { launch_activate(c, task); });
  return up;
}

void OpRunner::run_general(const GatedMlpArgs& a) {
  Linear down = device::down_of(a);
  down.bias[0] = a.bias[2];
  down.x = activated_products(a);
  project_and_finish(down, {.norm = vector_or_null(a.post_norm),
                            .eps = a.eps,
                            .norm_cols = a.post_norm != nullptr ? a.post_norm->cols() : 0,
                            .residual = a.residual.f32(),
                            .residual_scale = a.residual_scale,
                            .out_scale = a.out_scale,
                            .out = a.out.f32()});
}

void OpRunner::run(const LayerInputArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t n = a.gate->rows();
  auto* gate = static_cast<float*>(region(Region::gate_up, f32_rows_bytes(tokens, n)));
  Linear first = device::rows_of(a.x, nullptr, 0);
  first.add(a.gate, nullptr, gate);
  project(first);
  const ActivateRows task{.x = gate,
                          .factor = a.inputs.f32() + a.first_column,
                          .activation = a.activation,
                          .rows = tokens,
                          .cols = n,
                          .x_stride = n,
                          .factor_stride = a.inputs.cols(),
                          .out = gate};
  enqueue([&](const LaunchContext& c) { launch_activate(c, task); });
  Linear second = device::RowProduct{.x = gate, .tokens = tokens, .k = n};
  second.add(a.proj, nullptr, nullptr);
  project_and_finish(second, {.norm = vector_or_null(a.post_norm),
                              .eps = a.eps,
                              .norm_cols = a.post_norm != nullptr ? a.post_norm->cols() : 0,
                              .residual = a.x.f32(),
                              .out_scale = a.out_scale,
                              .out = a.out.f32()});
}

void OpRunner::run_general(const QkvRopeStoreArgs& a) {
  const int64_t tokens = a.x.rows();
  const bool stores = a.w[1] != nullptr;
  const int64_t q_rows = a.w[0]->rows();
  const int64_t k_rows = stores ? a.w[1]->rows() : 0;
  const int64_t v_rows = stores ? int64_t{a.kv.kv_heads} * a.kv.value_dim() : 0;
  // q, k and v as projected; norms of k and v, which may be the same rows, apart from them.
  const auto part = [&](int64_t rows) {
    return round_up(std::max<int64_t>(tokens, kMaxVectorTokens) * rows, kPartFloats);
  };
  const int64_t floats = part(q_rows) + 2 * part(k_rows) + 2 * part(v_rows);
  auto* q = static_cast<float*>(region(Region::raw_heads, floats * size_of(DType::f32)));
  float* k = q + part(q_rows);
  float* v = k + part(k_rows);
  float* normed_k = v + part(v_rows);
  float* normed_v = normed_k + part(k_rows);

  Linear job = device::product_of(a);
  job.out[0] = q;
  job.out[1] = k;
  job.out[2] = v;
  project(job);
  if (a.w_gate != nullptr) {
    Linear gate = device::rows_of(a.x, a.norm, a.eps);
    gate.add(a.w_gate, nullptr, a.gate.data);
    project(gate);
  }
  const auto normalize = [&](const float* from, const Weight* norm, int64_t rows, int64_t cols, float* to) {
    enqueue([&](const LaunchContext& c) {
      launch_norm_rows(c, {.x = from,
                           .weight = vector_or_null(norm),
                           .eps = a.eps,
                           .rows = tokens * rows / cols,
                           .cols = cols,
                           .out = to});
    });
    return to;
  };
  HeadStore task{.q = q,
                 .k = stores ? k : nullptr,
                 .v = a.w[2] != nullptr ? v : k,
                 .q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim),
                 .q_table = a.q_rope.empty() ? a.rope.table.f32() : a.q_rope.f32(),
                 .k_table = a.rope.table.f32(),
                 .rotated_dims = a.rope.rotated_dims,
                 .half_split = a.rope.pairing == RopePairing::half_split,
                 .kv = a.kv,
                 .batch = a.batch,
                 .q_out = a.q.f32()};
  if (a.q_norm != nullptr) task.q = normalize(q, a.q_norm, q_rows, a.q_norm->cols(), q);
  if (stores && a.v_norm) task.v = normalize(task.v, nullptr, v_rows, a.kv.value_dim(), normed_v);
  if (stores && a.k_norm != nullptr) task.k = normalize(k, a.k_norm, k_rows, a.k_norm->cols(), normed_k);
  enqueue([&](const LaunchContext& c) { launch_head_store(c, task); });
}

void OpRunner::run_general(const AttentionArgs& a) {
  const AttentionTask task{.q = a.q.f32(),
                           .out = a.out.f32(),
                           .q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim),
                           .scale = a.scale,
                           .kv = a.kv,
                           .batch = a.batch,
                           .causal = a.causal,
                           .window = a.window,
                           .softcap = a.softcap,
                           .sinks = vector_or_null(a.sinks),
                           .gate = a.gate.f32(),
                           .gate_per_head = a.gate.elements() != a.out.elements(),
                           .gate_activation = a.gate_activation};
  enqueue([&](const LaunchContext& c) { launch_attention_any(c, task); });
}

// ---- limits

namespace {

std::string heads_beyond(const KvLayerView& kv) {
  const int32_t widest = std::max(kv.head_dim, kv.value_dim());
  return widest <= kMaxAnyHeadDim ? "" : "heads of " + std::to_string(widest);
}
// Rows that a block loads as a whole.
std::string columns_beyond(const Weight* w) {
  const bool fits = w == nullptr || pair_product_fits(w->dtype(), w->cols(), 1);
  return fits ? "" : "rows of " + std::to_string(w->cols());
}

std::string beyond(const QkvRopeStoreArgs& a) {
  return heads_beyond(a.kv);
}
std::string beyond(const AttentionArgs& a) {
  return heads_beyond(a.kv);
}
std::string beyond(const LatentStoreArgs& a) {
  const std::string heads = heads_beyond(a.kv);
  return heads.empty() ? columns_beyond(a.k_b) : heads;
}
std::string beyond(const HeadLinearArgs& a) {
  return columns_beyond(a.w);
}
std::string beyond(const MoeMlpArgs& a) {
  if (a.router->rows() > kMaxExperts) return std::to_string(a.router->rows()) + " experts";
  if (a.routing.groups > kMaxExpertGroups) return std::to_string(a.routing.groups) + " groups of experts";
  if (a.x.cols() > kMaxExpertCols) return "rows of " + std::to_string(a.x.cols());
  for (const Weight* w : {a.gate, a.up, a.down}) {
    if (std::string rows = columns_beyond(w); !rows.empty()) return rows;
  }
  return "";
}
std::string beyond(const ShortConvArgs& a) {
  const int64_t taps = a.weight->shape().elements() / a.x.cols();
  return taps <= kMaxConvTaps ? "" : std::to_string(taps) + " taps";
}
std::string beyond(const DeltaNetArgs& a) {
  const bool fits = a.head_dim() <= kMaxStateRows && a.head_dim() % 4 == 0;
  return fits ? "" : "heads of " + std::to_string(a.head_dim());
}
std::string beyond(const Mamba2Args& a) {
  if (a.state_size() > kMaxStateRows) return "a state of " + std::to_string(a.state_size());
  return a.head_dim() % 4 == 0 ? "" : "heads of " + std::to_string(a.head_dim());
}

}  // namespace

std::string OpRunner::lacks(const OpRecord& record) {
  return record.visit([](const auto& args) -> std::string {
    if constexpr (requires { beyond(args); }) return beyond(args);
    return "";
  });
}

}  // namespace inferno::cuda
