// OpRunner's products of a prompt's step: which ops have such a kernel, and what they pass on to each other.
#include <algorithm>

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

void OpRunner::unpack(const Linear& job, PromptProduct& p) {
  int64_t bytes = 0;
  for (int i = 0; i < job.count; ++i) bytes += is_quantized(job.w[i]->dtype()) ? bf16_bytes(job.w[i]) : 0;
  if (bytes == 0) return;
  auto* to = static_cast<char*>(region(Region::unpacked, bytes));
  UnpackTask tasks[kMaxSegments];
  int count = 0;
  for (int i = 0; i < job.count; ++i) {
    const Weight* w = job.w[i];
    if (!is_quantized(w->dtype())) continue;
    // One launch for all of a type.
    UnpackTask* task = std::find_if(tasks, tasks + count, [&](const UnpackTask& t) { return t.dtype == w->dtype(); });
    if (task == tasks + count) tasks[count++] = {.dtype = w->dtype()};
    task->piece[task->pieces++] = {.w = on_device(w).planes(), .first = 0, .count = w->rows(), .out = to};
    p.segment[i].w = to;
    to += bf16_bytes(w);
  }
  for (int i = 0; i < count; ++i) {
    enqueue([&](const LaunchContext& c) { launch_unpack_bf16(c, tasks[i]); });
  }
  p.fresh_weights = true;
}

void OpRunner::run_prompt(const Linear& job, PromptProduct p) {
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
  unpack(job, p);
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
