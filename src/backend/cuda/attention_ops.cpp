// OpRunner's heads and attention: which kernel runs, and in which type and layout a private result is stored.
#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"
#include "backend/op_extras.h"
#include "base/error.h"

namespace inferno::cuda {
namespace {

// One token per sequence, and a kernel for that.
bool decodes(const AttentionArgs& a) {
  return inferno::is_plain(a) && a.batch.tokens == a.batch.sequences &&
         decode_attention_supports(a.kv, static_cast<int>(a.q.cols() / a.kv.head_dim));
}

void require_mapped(bool mapped) {
  if (!mapped) fail("cuda: the driver cannot make a tensor map of the KV cache");
}

}  // namespace

bool OpRunner::attends_prompt(const AttentionArgs& a) {
  return inferno::is_plain(a) && !decodes(a);
}

RawHeads OpRunner::project_heads(const QkvRopeStoreArgs& a) {
  Linear job = device::product_of(a);
  bool all_bf16 = true;
  for (int i = 0; i < 3; ++i) {
    all_bf16 = all_bf16 && a.bias[i] == nullptr && wide_type(a.w[i]->dtype()) == DType::bf16;
  }
  const int64_t q_rows = a.w[0]->rows();
  const int64_t kv_rows = a.w[1]->rows();
  const bool wide = is_wide(job);
  RawHeads raw;
  raw.dtype = job.out_type = wide && all_bf16 ? DType::bf16 : DType::f32;
  const int64_t size = size_of(raw.dtype);
  auto* memory = static_cast<char*>(region(Region::raw_heads, rows_bytes(job.tokens, q_rows + 2 * kv_rows, raw.dtype)));
  if (wide) {  // q, k and v of a token are contiguous
    job.out_stride = raw.q_stride = raw.kv_stride = q_rows + 2 * kv_rows;
    job.out[0] = memory;
    job.out[1] = memory + q_rows * size;
    job.out[2] = memory + (q_rows + kv_rows) * size;
  } else {
    raw.q_stride = q_rows;
    raw.kv_stride = kv_rows;
    job.out[0] = a.q.data;
    job.out[1] = memory;
    job.out[2] = memory + job.tokens * kv_rows * size;
  }
  project(job);
  raw.q = job.out[0];
  raw.k = job.out[1];
  raw.v = job.out[2];
  return raw;
}

void OpRunner::run(const QkvRopeStoreArgs& a, std::span<const OpRecord> after) {
  if (!inferno::is_plain(a) || a.kv.head_dim > kMaxHeadDim) return run_general(a);
  if (auto prompt = planning_ ? std::nullopt : prompt_heads(a, after)) {
    prompt->heads.q_out = region(Region::narrow_q, a.q.elements() * size_of(a.kv.dtype));
    narrow_q_of_ = a.q.data;
    const auto layer = prompt_layer(after);
    return run_prompt(device::product_of(a), *prompt,
                      layer ? std::span<const Linear>(*layer) : std::span<const Linear>());
  }
  RopeStore task{.raw = project_heads(a),
                 .norms = {vector_or_null(a.q_norm), vector_or_null(a.k_norm), a.eps},
                 .rope = a.rope,
                 .kv = a.kv,
                 .batch = a.batch,
                 .q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim),
                 .q_out = a.q.data};
  if (narrow_q_supports(a.kv, a.rope) && hopper_attention_supports(context_, a.kv, task.q_heads)) {
    void* narrow_q = region(Region::narrow_q, a.q.elements() * size_of(a.kv.dtype));
    if (a.private_result && !after.empty() && after[0].op() == OpId::attention &&
        attends_prompt(after[0].args<AttentionArgs>())) {
      task.q_out = narrow_q;
      task.q_type = a.kv.dtype;
      narrow_q_of_ = a.q.data;
    }
  }
  enqueue([&](const LaunchContext& c) { launch_rope_store(c, task); });
}

DecodeAttention OpRunner::decode_task(const AttentionArgs& b) {
  DecodeAttention d;
  d.task = {.q = b.q.f32(),
            .out = b.out.f32(),
            .q_heads = static_cast<int>(b.q.cols() / b.kv.head_dim),
            .scale = b.scale,
            .kv = b.kv,
            .batch = b.batch};
  const int64_t floats = decode_partial_floats(context_, d.task.q_heads, b.kv);
  d.partials = static_cast<float*>(region(Region::partials, floats * size_of(DType::f32)));
  d.counters = static_cast<uint32_t*>(
      region(Region::counters, decode_counters(context_) * static_cast<int64_t>(sizeof(uint32_t))));
  return d;
}

bool OpRunner::fuses(const QkvRopeStoreArgs& a, const AttentionArgs& b) {
  // One token per sequence, and the attention reads exactly what the projection wrote.
  return inferno::is_plain(a) && inferno::is_plain(b) && a.private_result && a.batch.tokens == a.batch.sequences &&
         a.kv.k == b.kv.k && a.kv.v == b.kv.v && a.batch.pos == b.batch.pos && a.batch.tokens == b.batch.tokens &&
         a.rope.rotated_dims == a.kv.head_dim &&
         decode_attention_supports(b.kv, static_cast<int>(b.q.cols() / b.kv.head_dim));
}

DecodeAttention OpRunner::fused_task(const QkvRopeStoreArgs& a, const AttentionArgs& b, const RawHeads& raw) {
  DecodeAttention d = decode_task(b);
  d.fused = true;
  d.raw = raw;
  d.norms = {vector_or_null(a.q_norm), vector_or_null(a.k_norm), a.eps};
  d.rope = a.rope;
  return d;
}

void OpRunner::run_fused(const QkvRopeStoreArgs& a, const AttentionArgs& b, std::span<const OpRecord> after) {
  DecodeAttention d = fused_task(a, b, project_heads(a));
  if (b.private_result) narrow_output(d.task, after);
  if (batch_attention_supports(context_, b.kv, d.task.q_heads, b.batch.tokens)) {
    request_output(d, after);
    enqueue([&](const LaunchContext& c) { require_mapped(launch_batch_attention(c, d)); });
  } else {
    enqueue([&](const LaunchContext& c) { launch_decode_attention(c, d); });
  }
}

// With 17 to 32 tokens two blocks of attention leave no room on a multiprocessor for one of the output projection,
// which so requests its weights late; small ones can be in L2 until then.
void OpRunner::request_output(DecodeAttention& d, std::span<const OpRecord> after) {
  constexpr int64_t kMostBytes = 8 << 20;
  const int tokens = d.task.batch.tokens;
  if (tokens <= kNarrowTokens || tokens > kFewTileTokens || after.empty() || after[0].op() != OpId::linear) return;
  const Weight* w = after[0].args<LinearArgs>().w[0];
  if (row_bytes(w->dtype(), w->cols()) * w->rows() > kMostBytes) return;
  const Planes& p = on_device(w).planes();
  const auto request = [&](const uint8_t* plane, int64_t row_bytes) {
    constexpr int64_t kStep = 16;
    return DecodeAttention::Request{plane, static_cast<int>(row_bytes * w->rows() / kStep * kStep)};
  };
  if (!is_quantized(w->dtype())) {
    d.next[0] = request(p.q, p.row_stride);
    return;
  }
  const GroupBytes bytes = group_bytes(w->dtype());
  d.next[0] = request(p.q, int64_t{p.groups} * bytes.q);
  d.next[1] = request(p.h, int64_t{p.groups} * bytes.h);
  d.next[2] = request(p.s, int64_t{p.groups} * bytes.s);
}

void OpRunner::narrow_output(AttentionTask& task, std::span<const OpRecord> after) {
  if (after.empty() || after[0].op() != OpId::linear) return;
  const auto& next = after[0].args<LinearArgs>();
  const DType type = wide_type(next.w[0]->dtype());
  if (!next.rows.empty() || next.x.data != task.out || type == DType::f32 || !is_wide(device::product_of(next))) return;
  // The linear may be of some tokens only.
  task.narrow_out = region(Region::wide_x, task.batch.tokens * next.x.cols() * size_of(type));
  task.narrow_type = type;
  wide_x_of_ = next.x.data;
  wide_x_type_ = type;
}

void OpRunner::run(const AttentionArgs& a, std::span<const OpRecord> after) {
  if (!inferno::is_plain(a) || a.kv.head_dim > kMaxHeadDim) return run_general(a);
  const auto q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim);
  // The planned step has many tokens per sequence; later ones decode.
  if (planning_ && decode_attention_supports(a.kv, q_heads)) (void)decode_task(a);
  if (decodes(a)) {
    const DecodeAttention d = decode_task(a);
    enqueue([&](const LaunchContext& c) { launch_decode_attention(c, d); });
    return;
  }
  AttentionTask task{
      .q = a.q.f32(), .out = a.out.f32(), .q_heads = q_heads, .scale = a.scale, .kv = a.kv, .batch = a.batch};
  if (hopper_attention_supports(context_, a.kv, q_heads)) {
    took_private_ = narrow_q_of_ == a.q.data;
    if (took_private_) task.narrow_q = region(Region::narrow_q, 0);
    narrow_q_of_ = nullptr;
    if (a.private_result) narrow_output(task, after);
    const bool beside = took_private_ && a.batch.decodes > 0 && attention_beside_supports(context_, a.kv, q_heads);
    if (beside) task.first_sequence = a.batch.decodes;
    enqueue([&](const LaunchContext& c) { require_mapped(launch_hopper_attention(c, task)); });
    if (beside) enqueue([&](const LaunchContext& c) { require_mapped(launch_attention_beside(c, task)); });
    return;
  }
  enqueue([&](const LaunchContext& c) {
    prefill_attention_supports(a.kv, q_heads) ? launch_prefill_attention(c, task) : launch_attention_any(c, task);
  });
}

}  // namespace inferno::cuda
