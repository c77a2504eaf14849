// OpRunner's products of a prompt's step: which ops have such a kernel, and what they pass on to each other.
#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/batch_chain_task.h"
#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"
#include "backend/op_extras.h"
#include "base/error.h"

namespace inferno::cuda {

using Result = PromptProduct::Result;

namespace {

int64_t bf16_bytes(const Weight* w) {
  return w->rows() * w->cols() * size_of(DType::bf16);
}

}  // namespace

int64_t unpacked_bytes(std::span<const Weight* const> weights) {
  int64_t bytes = 0;
  for (const Weight* w : weights) bytes += is_quantized(w->dtype()) ? bf16_bytes(w) : 0;
  return bytes;
}

std::optional<PromptProduct> OpRunner::prompt_of(const Linear& job, PromptProduct p) const {
  if (job.row_ids != nullptr || job.tokens > kMaxPromptTokens) return std::nullopt;
  p.tokens = static_cast<int>(job.tokens);
  p.k = static_cast<int>(job.k);
  p.segments = job.count;
  int64_t quantized = 0;
  for (int i = 0; i < job.count; ++i) {
    const DType type = job.w[i]->dtype();
    if (wide_type(type) != DType::bf16 || job.bias[i] != nullptr) return std::nullopt;
    if (is_quantized(type)) quantized += job.w[i]->rows() * job.k;
    p.segment[i] = {.w = on_device(job.w[i]).planes().q, .rows = static_cast<int>(job.w[i]->rows())};
  }
  if (quantized > kUnpackedValues || !prompt_product_fits(context_, p)) return std::nullopt;
  return p;
}

std::optional<PromptProduct> OpRunner::prompt_heads(const QkvRopeStoreArgs& a, std::span<const OpRecord> after) const {
  if (!inferno::is_plain(a) || !a.private_result || after.empty() || after[0].op() != OpId::attention) {
    return std::nullopt;
  }
  const auto q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim);
  const auto& next = after[0].args<AttentionArgs>();
  if (!attends_prompt(next) || !hopper_attention_supports(context_, a.kv, q_heads)) return std::nullopt;
  return prompt_of(device::product_of(a),
                   {.result = Result::heads,
                    .heads = {.norms = {vector_or_null(a.q_norm), vector_or_null(a.k_norm), a.eps},
                              .rope = a.rope,
                              .kv = a.kv,
                              .batch = a.batch,
                              .q_heads = q_heads,
                              .q_type = a.kv.dtype}});
}

std::optional<PromptProduct> OpRunner::prompt_residual(const Linear& job) const {
  if (job.count != 1 || job.residual == nullptr || job.out_type != DType::f32 || job.norm != nullptr)
    return std::nullopt;
  return prompt_of(job, {.result = Result::residual, .out = job.out[0], .residual = job.residual});
}

std::optional<std::array<OpRunner::Linear, 3>> OpRunner::prompt_layer(std::span<const OpRecord> after) const {
  if (after.size() < 3 || after[1].op() != OpId::linear || after[2].op() != OpId::gated_mlp) {
    return std::nullopt;
  }
  const auto& output = after[1].args<LinearArgs>();
  const auto& mlp = after[2].args<GatedMlpArgs>();
  if (!inferno::is_plain(output) || !inferno::is_plain(mlp)) return std::nullopt;
  std::array<Linear, 3> products = {device::product_of(output), device::gate_up_of(mlp), device::down_of(mlp)};
  const bool fit = prompt_residual(products[0]) && prompt_of(products[1], {.result = Result::swiglu}) &&
                   prompt_residual(products[2]);
  return fit ? std::optional(products) : std::nullopt;
}

void OpRunner::reserve_unpacked(const OpRecord& record) {
  if (!context_.hopper) return;
  const auto add = [&](const Linear& job) { planned_bytes_ += unpacked_bytes({job.w, job.w + job.count}); };
  if (record.op() == OpId::qkv_rope_store) {
    planned_bytes_ = 0;
    add(device::product_of(record.args<QkvRopeStoreArgs>()));
  } else if (record.op() == OpId::linear) {
    add(device::product_of(record.args<LinearArgs>()));
  } else if (record.op() == OpId::gated_mlp) {
    const auto& mlp = record.args<GatedMlpArgs>();
    const Linear both = device::gate_up_of(mlp);
    add(both);
    add(device::down_of(mlp));
    const int64_t bytes = std::exchange(planned_bytes_, 0);
    // The planned step may have more tokens than the kernels that read such weights.
    if (both.tokens < kLeastUnpackedTokens || bytes > kUnpackedBytes || !inferno::is_plain(mlp)) return;
    if (bytes > 0) (void)region(Region::unpacked, bytes);
  }
}

const void* OpRunner::bf16_rows(const Weight* w) const {
  if (!is_quantized(w->dtype())) return on_device(w).planes().q;
  const Unpacked* found =
      std::find_if(unpacked_, unpacked_ + unpacked_count_, [&](const Unpacked& u) { return u.of == w; });
  return found == unpacked_ + unpacked_count_ ? nullptr : found->at;
}

void OpRunner::unpack(std::span<const Weight* const> weights, bool free) {
  auto* to = static_cast<char*>(region(Region::unpacked, unpacked_bytes(weights)));
  UnpackTask tasks[kMaxUnpackPieces];
  int count = 0;
  unpacked_count_ = 0;
  for (const Weight* w : weights) {
    if (!is_quantized(w->dtype())) continue;
    // One launch for all of a type.
    UnpackTask* task = std::find_if(tasks, tasks + count, [&](const UnpackTask& t) { return t.dtype == w->dtype(); });
    if (task == tasks + count) *task = {.dtype = w->dtype(), .beside = count++ > 0 || free};
    task->piece[task->pieces++] = {.w = on_device(w).planes(), .first = 0, .count = w->rows(), .out = to};
    unpacked_[unpacked_count_++] = {w, to};
    to += bf16_bytes(w);
  }
  for (int i = 0; i < count; ++i) {
    enqueue([&](const LaunchContext& c) { launch_unpack_bf16(c, tasks[i]); });
  }
}

void OpRunner::unpack(const Linear& job, std::span<const Linear> after, PromptProduct& p) {
  const auto find_all = [&] {
    bool all = true;
    for (int i = 0; i < job.count; ++i) {
      p.segment[i].w = bf16_rows(job.w[i]);
      all = all && p.segment[i].w != nullptr;
    }
    return all;
  };
  if (find_all()) return;
  const Weight* weights[kMaxUnpackPieces];
  int count = 0;
  const auto add = [&](const Linear& of) {
    for (int i = 0; i < of.count; ++i) weights[count++] = of.w[i];
  };
  add(job);
  const int alone = count;
  for (const Linear& next : after) add(next);
  if (unpacked_bytes({weights, weights + count}) > kUnpackedBytes) count = alone;
  unpack({weights, weights + count}, false);
  (void)find_all();
  p.fresh_weights = true;
}

void OpRunner::run_prompt(const Linear& job, PromptProduct p, std::span<const Linear> after) {
  if (p.x == nullptr && job.norm != nullptr && normed_.x == job.x && normed_.norm == job.norm) {
    const SharedNorm shared = shared_norm(job.k);
    p.x = shared.x;
    p.squares = shared.squares;
    p.eps = job.eps;
    wide_x_of_ = nullptr;
    took_private_ = true;
  } else if (p.x == nullptr) {
    p.x = prepare_wide(job, DType::bf16);
  }
  if (p.result == Result::residual) share_prompt_norm(job, p);
  unpack(job, after, p);
  enqueue([&](const LaunchContext& c) {
    if (!launch_prompt_product(c, p)) fail("cuda: the driver cannot make a tensor map of a product");
  });
}

void OpRunner::share_prompt_norm(const Linear& job, PromptProduct& p) {
  const std::optional<Linear> next = normed_product_after(job);
  if (!next) return;
  const bool fits = after_[0].op() == OpId::gated_mlp
                        ? prompt_of(*next, {.result = Result::swiglu}).has_value()
                        : prompt_heads(after_[0].args<QkvRopeStoreArgs>(), after_.subspan(1)).has_value();
  if (!fits) return;
  const SharedNorm shared = shared_norm(next->k);
  p.next_norm = vector_or_null(next->norm);
  p.next_x = shared.x;
  p.next_squares = shared.squares;
  next_normed_ = {next->x, next->norm};
}

}  // namespace inferno::cuda
