#include "backend/cuda/op_runner.h"

#include <algorithm>

#include "backend/cuda/error.h"
#include "base/checked.h"

namespace inferno::cuda {
namespace {

// bf16 values of an unpacked weight that are in memory at a time.
constexpr int64_t kUnpackedValues = int64_t{32} << 20;

const CudaWeight& on_device(const Weight* w) {
  return static_cast<const CudaWeight&>(*w);
}
const float* vector_or_null(const Weight* w) {
  return w == nullptr ? nullptr : on_device(w).vector();
}

// The type in which a weight is multiplied in wide mode.
DType wide_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 ? dtype : DType::bf16;
}
int64_t size_of(DType dtype) {
  return row_bytes(dtype, 1);
}
// Elements between rows of a wide input: 16-byte pieces.
int64_t wide_stride(DType dtype, int64_t k) {
  return round_up(k, 16 / size_of(dtype));
}

int64_t logit_rows(const Tensor& rows, const Tensor& x) {
  return rows.empty() ? x.rows() : rows.elements();
}

}  // namespace

OpRunner::OpRunner(const LaunchContext& context, const std::shared_ptr<FreeCount>& frees)
    : context_(context), gemm_(context.stream, frees), workspace_(frees) {}

bool OpRunner::supports(OpId op, DType dtype) const {
  switch (op) {
    case OpId::attention:
    case OpId::kv_store:
      return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0;
    default:
      return is_fused(op) && dtype != DType::i32;
  }
}

void OpRunner::enqueue(const Product& p) {
  if (!planning_) gemm_.run(p);
}

void OpRunner::reserve(const OpRecord& record) {
  planning_ = true;
  try {
    (void)run(std::span(&record, 1));
  } catch (...) {
    planning_ = false;
    throw;
  }
  planning_ = false;
}

size_t OpRunner::run(std::span<const OpRecord> records) {
  const OpRecord& record = records[0];
  if (records.size() > 1 && record.op() == OpId::qkv_rope_store && records[1].op() == OpId::attention) {
    const auto& a = record.args<QkvRopeStoreArgs>();
    const auto& b = records[1].args<AttentionArgs>();
    if (fuses(a, b)) {
      run_fused(a, b);
      return 2;
    }
  }
  record.visit([&](const auto& args) {
    if constexpr (requires { this->run(args); }) {
      run(args);
    } else {
      fail("backend \"cuda\" has no kernel for the primitive \"{}\"", op_name(record.op()));
    }
  });
  return 1;
}

// ---- linear

bool OpRunner::is_wide(const Linear& job) {
  for (int i = 0; i < job.count; ++i) {
    if (!vector_product_fits(job.w[i]->dtype(), static_cast<int>(std::min<int64_t>(job.tokens, 1 << 20)), job.k)) {
      return true;
    }
  }
  return false;
}

void OpRunner::project(const Linear& job) {
  is_wide(job) ? project_wide(job) : project_vector(job, false);
}

void OpRunner::project_vector(const Linear& job, bool swiglu) {
  VectorProduct p;
  p.x = job.x;
  p.row_ids = job.row_ids;
  p.norm = vector_or_null(job.norm);
  p.eps = job.eps;
  p.tokens = static_cast<int>(job.tokens);
  p.k = static_cast<int>(job.k);
  p.segments = job.count;
  for (int i = 0; i < job.count; ++i) {
    p.segment[i] = {.w = on_device(job.w[i]).planes(),
                    .dtype = job.w[i]->dtype(),
                    .rows = static_cast<int>(job.w[i]->rows()),
                    .bias = vector_or_null(job.bias[i]),
                    .out = static_cast<float*>(job.out[i])};
  }
  p.residual = job.residual;
  p.swiglu = swiglu;
  enqueue([&](const LaunchContext& c) { launch_vector_product(c, p); });
}

void OpRunner::multiply_wide(const Weight& w, const void* x, int64_t tokens, DType out_type, void* out,
                             const void* add) {
  const DType type = wide_type(w.dtype());
  const CudaWeight& weight = on_device(&w);
  const int64_t stride = wide_stride(type, w.cols());
  const bool unpacks = is_quantized(w.dtype());
  const int64_t step = unpacks ? std::max<int64_t>(1, kUnpackedValues / w.cols()) : w.rows();
  for (int64_t first = 0; first < w.rows(); first += step) {
    const int64_t count = std::min(step, w.rows() - first);
    const void* rows = weight.planes().q;
    if (unpacks) {
      void* unpacked = region(Region::unpacked, std::min(step, w.rows()) * w.cols() * 2);
      enqueue(
          [&](const LaunchContext& c) { launch_unpack_bf16(c, weight.planes(), w.dtype(), first, count, unpacked); });
      rows = unpacked;
    }
    const int64_t offset = first * size_of(out_type);
    enqueue(Product{.m = tokens,
                    .n = count,
                    .k = stride,
                    .in = type,
                    .out = out_type,
                    .x = x,
                    .ldx = stride,
                    .w = rows,
                    .ldw = stride,
                    .y = static_cast<char*>(out) + offset,
                    .ldy = w.rows(),
                    .add = add == nullptr ? nullptr : static_cast<const char*>(add) + offset});
  }
}

void OpRunner::project_wide(const Linear& job) {
  const void* x = nullptr;
  for (int i = 0; i < job.count; ++i) {
    const DType type = wide_type(job.w[i]->dtype());
    if (i == 0 || type != wide_type(job.w[i - 1]->dtype())) {
      const int64_t stride = wide_stride(type, job.k);
      void* converted = region(Region::wide_x, job.tokens * stride * size_of(type));
      enqueue([&](const LaunchContext& c) {
        launch_prepare_rows(c, job.x, job.row_ids, vector_or_null(job.norm), job.eps, job.tokens, job.k, type, stride,
                            converted);
      });
      x = converted;
    }
    multiply_wide(*job.w[i], x, job.tokens, job.out_type, job.out[i], job.residual);
    if (job.bias[i] != nullptr) {
      enqueue([&](const LaunchContext& c) {
        launch_add_bias(c, static_cast<float*>(job.out[i]), vector_or_null(job.bias[i]), job.tokens, job.w[i]->rows());
      });
    }
  }
}

void OpRunner::gate_and_up(const Linear& job, DType out_type, int64_t out_stride, void* out) {
  const int64_t n = job.w[0]->rows();
  const bool wide = is_wide(job);
  if (!wide && out_type == DType::f32 && job.w[0]->dtype() == job.w[1]->dtype()) {
    Linear both = job;
    both.out[0] = both.out[1] = out;
    project_vector(both, true);
    return;
  }
  Linear both = job;
  // Results in bf16 halve the traffic where the next product is in bf16 anyway.
  both.out_type = wide && out_type == DType::bf16 ? DType::bf16 : DType::f32;
  both.out[0] = region(Region::wide_gate, job.tokens * n * size_of(both.out_type));
  both.out[1] = region(Region::wide_up, job.tokens * n * size_of(both.out_type));
  wide ? project_wide(both) : project_vector(both, false);
  enqueue([&](const LaunchContext& c) {
    launch_swiglu(c, both.out[0], both.out[1], job.tokens, n, both.out_type, out_type, out_stride, out);
  });
}

void OpRunner::run(const LinearArgs& a) {
  Linear job;
  job.x = a.x.f32();
  job.row_ids = a.rows.as<int32_t>();
  job.tokens = logit_rows(a.rows, a.x);
  job.k = a.x.cols();
  while (job.count < kMaxSegments && a.w[job.count] != nullptr) {
    job.w[job.count] = a.w[job.count];
    job.bias[job.count] = a.bias[job.count];
    job.out[job.count] = a.out[job.count].data;
    ++job.count;
  }
  if (a.epilogue == Epilogue::swiglu) {
    std::fill(std::begin(job.bias), std::end(job.bias), nullptr);
    gate_and_up(job, DType::f32, a.w[0]->rows(), a.out[0].data);
    return;
  }
  job.residual = a.residual.f32();
  project(job);
}

void OpRunner::run(const GatedMlpArgs& a) {
  Linear first;
  first.x = a.x.f32();
  first.norm = a.norm;
  first.eps = a.eps;
  first.tokens = a.x.rows();
  first.k = a.x.cols();
  first.count = 2;
  first.w[0] = a.gate;
  first.w[1] = a.up;
  Linear second;
  second.tokens = first.tokens;
  second.k = a.down->cols();
  second.count = 1;
  second.w[0] = a.down;
  second.out[0] = a.out.data;
  second.residual = a.residual.f32();
  if (!is_wide(second)) {
    void* middle = region(Region::activated, first.tokens * second.k * size_of(DType::f32));
    gate_and_up(first, DType::f32, second.k, middle);
    second.x = static_cast<const float*>(middle);
    project_vector(second, false);
    return;
  }
  const DType type = wide_type(a.down->dtype());
  const int64_t stride = wide_stride(type, second.k);
  void* middle = region(Region::wide_middle, first.tokens * stride * size_of(type));
  if (stride != second.k) {  // the padding behind each row stays zero
    enqueue([&](const LaunchContext& c) {
      check(cudaMemsetAsync(middle, 0, static_cast<size_t>(first.tokens * stride * size_of(type)), c.stream),
            "clearing scratch memory");
    });
  }
  gate_and_up(first, type, stride, middle);
  multiply_wide(*a.down, middle, first.tokens, DType::f32, a.out.data, a.residual.data);
}

void OpRunner::run(const LogitsArgs& a) {
  Linear job;
  job.x = a.x.f32();
  job.row_ids = a.rows.as<int32_t>();
  job.norm = a.norm;
  job.eps = a.eps;
  job.tokens = a.rows.elements();
  job.k = a.x.cols();
  job.count = 1;
  job.w[0] = a.head;
  job.out[0] = a.out.data;
  project(job);
}

// ---- heads and attention

RawHeads OpRunner::project_heads(const QkvRopeStoreArgs& a, float* q_f32) {
  Linear job;
  job.x = a.x.f32();
  job.norm = a.norm;
  job.eps = a.eps;
  job.tokens = a.x.rows();
  job.k = a.x.cols();
  job.count = 3;
  bool all_bf16 = true;
  for (int i = 0; i < 3; ++i) {
    job.w[i] = a.w[i];
    job.bias[i] = a.bias[i];
    all_bf16 = all_bf16 && a.bias[i] == nullptr && wide_type(a.w[i]->dtype()) == DType::bf16;
  }
  const int64_t q_values = job.tokens * a.w[0]->rows();
  const int64_t kv_values = job.tokens * a.w[1]->rows();
  RawHeads raw;
  raw.dtype = job.out_type = is_wide(job) && all_bf16 ? DType::bf16 : DType::f32;
  const int64_t size = size_of(raw.dtype);
  auto* memory =
      static_cast<char*>(region(Region::raw_heads, (round_up(q_values, 64) + 2 * round_up(kv_values, 64)) * size));
  job.out[0] = raw.dtype == DType::f32 ? static_cast<void*>(q_f32) : memory;
  job.out[1] = memory + round_up(q_values, 64) * size;
  job.out[2] = static_cast<char*>(job.out[1]) + round_up(kv_values, 64) * size;
  project(job);
  raw.q = job.out[0];
  raw.k = job.out[1];
  raw.v = job.out[2];
  return raw;
}

void OpRunner::run(const QkvRopeStoreArgs& a) {
  const RawHeads raw = project_heads(a, a.q.f32());
  const HeadNorms norms{vector_or_null(a.q_norm), vector_or_null(a.k_norm), a.eps};
  enqueue([&](const LaunchContext& c) {
    launch_rope_store(c, raw, norms, a.rope, a.kv, a.batch, static_cast<int>(a.q.cols() / a.kv.head_dim), a.q.f32());
  });
}

DecodeAttention OpRunner::decode_task(const AttentionArgs& b) {
  DecodeAttention d;
  d.task = {.q = b.q.f32(),
            .out = b.out.f32(),
            .q_heads = static_cast<int>(b.q.cols() / b.kv.head_dim),
            .scale = b.scale,
            .kv = b.kv,
            .batch = b.batch};
  const int64_t floats = decode_partial_floats(context_, b.batch.tokens, d.task.q_heads, b.kv);
  d.partials = static_cast<float*>(region(Region::partials, floats * size_of(DType::f32)));
  d.counters = static_cast<uint32_t*>(
      region(Region::counters, int64_t{b.batch.tokens} * b.kv.kv_heads * int64_t{sizeof(uint32_t)}));
  return d;
}

bool OpRunner::fuses(const QkvRopeStoreArgs& a, const AttentionArgs& b) {
  // One token per sequence, and the attention reads exactly what the projection made.
  return a.batch.tokens == a.batch.sequences && a.q.data == b.q.data && a.kv.k == b.kv.k && a.kv.v == b.kv.v &&
         a.batch.pos == b.batch.pos && a.batch.tokens == b.batch.tokens &&
         decode_attention_supports(b.kv, static_cast<int>(b.q.cols() / b.kv.head_dim));
}

void OpRunner::run_fused(const QkvRopeStoreArgs& a, const AttentionArgs& b) {
  DecodeAttention d = decode_task(b);
  d.fused = true;
  d.raw = project_heads(a, a.q.f32());
  d.norms = {vector_or_null(a.q_norm), vector_or_null(a.k_norm), a.eps};
  d.rope = a.rope;
  enqueue([&](const LaunchContext& c) { launch_decode_attention(c, d); });
}

void OpRunner::run(const AttentionArgs& a) {
  const auto q_heads = static_cast<int>(a.q.cols() / a.kv.head_dim);
  if (a.kv.head_dim > kMaxHeadDim) {
    fail("backend \"cuda\" supports heads up to {} wide, this model's are {}", kMaxHeadDim, a.kv.head_dim);
  }
  if (a.batch.tokens == a.batch.sequences && decode_attention_supports(a.kv, q_heads)) {
    const DecodeAttention d = decode_task(a);
    enqueue([&](const LaunchContext& c) { launch_decode_attention(c, d); });
    return;
  }
  const AttentionTask task{
      .q = a.q.f32(), .out = a.out.f32(), .q_heads = q_heads, .scale = a.scale, .kv = a.kv, .batch = a.batch};
  enqueue([&](const LaunchContext& c) {
    prefill_attention_supports(a.kv, q_heads) ? launch_prefill_attention(c, task) : launch_attention_any(c, task);
  });
}

// ---- the rest

void OpRunner::run(const EmbedArgs& a) {
  enqueue([&](const LaunchContext& c) {
    launch_embed(c, on_device(a.table).planes(), a.table->dtype(), a.table->rows(), a.ids.as<int32_t>(),
                 static_cast<int>(a.ids.elements()), a.table->cols(), a.out.f32());
  });
}

void OpRunner::run(const RmsNormArgs& a) {
  const int64_t cols = a.weight->cols();
  enqueue([&](const LaunchContext& c) {
    launch_rms_norm(c, a.x.f32(), on_device(a.weight).vector(), a.eps, a.x.elements() / cols, cols, a.out.f32());
  });
}

void OpRunner::run(const SampleArgs& a) {
  const auto rows = static_cast<int>(a.logits.rows());
  const int64_t vocabulary = a.logits.cols();
  void* scratch = region(Region::sampling, sample_scratch_bytes(rows, vocabulary));
  enqueue([&](const LaunchContext& c) {
    launch_sample(c, a.logits.f32(), rows, vocabulary, a.params.as<SampleParams>(), a.history.as<int32_t>(), scratch,
                  a.out.as<int32_t>());
  });
}

void OpRunner::run(const KvStoreArgs& a) {
  enqueue([&](const LaunchContext& c) { launch_kv_store(c, a.k.f32(), a.v.f32(), a.kv, a.batch); });
}

}  // namespace inferno::cuda
