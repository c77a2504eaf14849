#include "backend/cuda/op_runner.h"

#include <algorithm>

#include "backend/cuda/error.h"
#include "backend/cuda/kernels/few_rows.h"
#include "backend/cuda/op_support.h"
#include "backend/device/op_kernels.h"
#include "backend/op_extras.h"

namespace inferno::cuda {
OpRunner::OpRunner(const LaunchContext& context, const std::shared_ptr<FreeCount>& frees)
    : context_(context), gemm_(context.stream, frees), workspace_(frees) {}

bool OpRunner::supports(OpId op, DType dtype) const {
  switch (op) {
    case OpId::attention:
    case OpId::kv_store:
      return device::is_cache_type(dtype);
    case OpId::add:
      return dtype == DType::f32;
    default:
      return is_fused(op) && has_kernel(op) && has_kernels(dtype);
  }
}

void OpRunner::enqueue(const Product& p) {
  if (!planning_) gemm_.run(p);
}

void OpRunner::reserve(const OpRecord& record) {
  const device::Planning planning(planning_);
  (void)run(std::span(&record, 1));
  reserve_unpacked(record);
  if (record.op() != OpId::qkv_rope_store) return;
  reserve_layers(record.args<QkvRopeStoreArgs>());
  reserve_batch_layers();
}

size_t OpRunner::run(std::span<const OpRecord> records) {
  const OpRecord& record = records[0];
  took_private_ = false;
  normed_ = next_normed_;
  next_normed_ = {};
  after_ = records.subspan(1);
  if (const size_t layers = run_layers(records); layers != 0) return layers;
  if (const size_t layers = run_batch_layers(records); layers != 0) return layers;
  if (records.size() > 1 && record.op() == OpId::qkv_rope_store && records[1].op() == OpId::attention) {
    const auto& a = record.args<QkvRopeStoreArgs>();
    const auto& b = records[1].args<AttentionArgs>();
    if (fuses(a, b)) {
      run_fused(a, b, records.subspan(2));
      return 2;
    }
  }
  record.visit([&](const auto& args) {
    if constexpr (requires { this->run(args, records); }) {
      run(args, records.subspan(1));
    } else if constexpr (requires { this->run(args); }) {
      run(args);
    } else {
      fail("backend \"cuda\" has no kernel for the primitive \"{}\"", op_name(record.op()));
    }
  });
  return 1;
}

// ---- linear

bool OpRunner::is_wide(const OpRecord& record) const {
  return device::all_products(record,
                              [&](const Linear& job) { return is_quantized(job.w[0]->dtype()) && is_wide(job); });
}

bool OpRunner::is_wide(const Linear& job) const {
  for (int i = 0; i < job.count; ++i) {
    if (!vector_product_fits(context_, job.w[i]->dtype(), static_cast<int>(std::min<int64_t>(job.tokens, 1 << 20)),
                             job.k)) {
      return true;
    }
  }
  if (job.tokens < kLeastHeadTokens || few_rows_fit(context_, vector_of(job, false))) return false;
  const TileProduct tiles = tiles_of(job, 0, job.count, false);
  return is_head_product(context_, tiles) || (job.tokens >= kLeastTileTokens && tile_product_fits(context_, tiles));
}

void OpRunner::project(const Linear& job) {
  is_wide(job) ? project_wide(job) : project_vector(job, false);
}

VectorProduct OpRunner::vector_of(const Linear& job, bool swiglu) {
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
  return p;
}

void OpRunner::project_vector(const Linear& job, bool swiglu) {
  const VectorProduct p = vector_of(job, swiglu);
  enqueue([&](const LaunchContext& c) { launch_vector_product(c, p); });
}

void OpRunner::gate_and_up(const Linear& job, DType out_type, int64_t out_stride, void* out) {
  const int64_t n = job.w[0]->rows();
  const bool wide = is_wide(job);
  Linear both = job;
  if (!wide && out_type == DType::f32 && job.w[0]->dtype() == job.w[1]->dtype()) {
    both.out[0] = both.out[1] = out;
    project_vector(both, true);
    return;
  }
  // Results in bf16 halve the traffic where the next product is in bf16 anyway. In wide mode a token's are contiguous.
  both.out_type = wide && out_type == DType::bf16 ? DType::bf16 : DType::f32;
  const int64_t size = size_of(both.out_type);
  auto* results = static_cast<char*>(region(Region::gate_up, 2 * rows_bytes(job.tokens, n, both.out_type)));
  if (both.out_type == DType::bf16) {
    const bool dense = out_stride == n && !planning_;
    if (const auto prompt =
            dense ? prompt_of(job, {.result = PromptProduct::Result::swiglu, .out = out}) : std::nullopt) {
      return run_prompt(job, *prompt);
    }
    both.out[0] = both.out[1] = out;
    both.out_stride = out_stride;
    if (multiplies_tiles(both, 0, 2, true)) {
      project_tiles(both, 0, 2, true);
      return;
    }
  }
  both.out[0] = results;
  both.out[1] = results + (wide ? n : job.tokens * n) * size;
  both.out_stride = wide ? 2 * n : 0;
  wide ? project_wide(both) : project_vector(both, false);
  enqueue([&](const LaunchContext& c) {
    launch_swiglu(c, both.out[0], both.out[1], job.tokens, n, both.out_type, wide ? 2 * n : n, out_type, out_stride,
                  out);
  });
}

void OpRunner::run(const LinearArgs& a) {
  if (!inferno::is_plain(a)) return run_general(a);
  Linear job = device::product_of(a);
  // The planned step may have more tokens than tiles do.
  if (planning_ && job.residual != nullptr) (void)shared_norm(a.w[0]->rows());
  if (a.epilogue == Epilogue::swiglu) {
    job.residual = nullptr;
    gate_and_up(job, DType::f32, a.w[0]->rows(), a.out[0].data);
  } else {
    project(job);
  }
}

void OpRunner::run(const GatedMlpArgs& a) {
  if (!inferno::is_plain(a)) return run_general(a);
  const Linear first = device::gate_up_of(a);
  Linear second = device::down_of(a);
  if (planning_) (void)shared_norm(a.down->rows());
  void* narrow_middle = region(Region::activated, kMaxVectorTokens * second.k * size_of(DType::f32));
  if (!is_wide(second)) {
    gate_and_up(first, DType::f32, second.k, narrow_middle);
    second.x = static_cast<const float*>(narrow_middle);
    project_vector(second, false);
    return;
  }
  const DType type = wide_type(a.down->dtype());
  const int64_t stride = wide_stride(type, second.k);
  void* middle = region(Region::wide_middle, first.tokens * stride * size_of(type));
  if (stride != second.k) {  // the padding of each row is zero
    enqueue([&](const LaunchContext& c) {
      check(cudaMemsetAsync(middle, 0, static_cast<size_t>(first.tokens * stride * size_of(type)), c.stream),
            "clearing scratch memory");
    });
  }
  gate_and_up(first, type, stride, middle);
  if (auto prompt = planning_ ? std::nullopt : prompt_residual(second)) {
    prompt->x = middle;
    run_prompt(second, *prompt);
  } else if (multiplies_tiles(second, 0, 1, false)) {
    multiply_tiles(second, middle);
  } else {
    multiply_wide(second, 0, 1, middle);
  }
}

void OpRunner::run(const LogitsArgs& a) {
  project(device::product_of(a));
  if (inferno::is_plain(a)) return;
  enqueue([&](const LaunchContext& c) { launch_scale_and_cap(c, a.out.f32(), a.out.elements(), a.scale, a.softcap); });
}

// ---- the rest

void OpRunner::run(const EmbedArgs& a) {
  enqueue([&](const LaunchContext& c) {
    launch_embed(c, on_device(a.table).planes(), a.table->dtype(), a.table->rows(), a.ids.as<int32_t>(),
                 static_cast<int>(a.ids.elements()), a.table->cols(), a.scale, a.out.f32());
  });
}

void OpRunner::run(const RmsNormArgs& a) {
  const int64_t cols = a.weight != nullptr ? a.weight->cols() : a.x.cols();
  enqueue([&](const LaunchContext& c) {
    if (a.weight == nullptr) {
      launch_norm_rows(c,
                       {.x = a.x.f32(), .eps = a.eps, .rows = a.x.elements() / cols, .cols = cols, .out = a.out.f32()});
      return;
    }
    launch_rms_norm(c, a.x.f32(), on_device(a.weight).vector(), a.eps, a.x.elements() / cols, cols, a.out.f32());
  });
}

void OpRunner::run(const SampleArgs& a) {
  SampleTask task{.logits = a.logits.f32(),
                  .rows = static_cast<int>(a.logits.rows()),
                  .vocabulary = static_cast<int>(a.logits.cols()),
                  .row = a.rows.as<SampleRow>(),
                  .edits = a.edits.as<TokenEdit>(),
                  .allowed = a.allowed.as<uint32_t>(),
                  .allowed_words = a.allowed.cols(),
                  .out = a.out.as<int32_t>(),
                  .top_ids = a.top_ids.as<int32_t>(),
                  .logprobs = a.logprobs.f32()};
  task.scratch = region(Region::sampling, sample_scratch_bytes(task.rows, task.vocabulary));
  enqueue([&](const LaunchContext& c) { launch_sample(c, task); });
}

void OpRunner::run(const AllReduceArgs& a) {
  if (exchange_ == nullptr) return;
  enqueue([&](const LaunchContext& c) { exchange_->run(c, a); });
  first_of_chain_ = true;
}

void OpRunner::run(const AllGatherArgs& a) {
  if (exchange_ != nullptr && planning_) return exchange_->reserve(a);
  enqueue([&](const LaunchContext& c) {
    if (exchange_ != nullptr) return exchange_->run(c, a);
    check(cudaMemcpyAsync(a.out.data, a.x.data, static_cast<size_t>(a.x.bytes()), cudaMemcpyDeviceToDevice, c.stream),
          "all_gather");
  });
  first_of_chain_ = true;
}

void OpRunner::run(const KvStoreArgs& a) {
  if (inferno::is_plain(a) && !a.v.empty()) {
    enqueue([&](const LaunchContext& c) { launch_kv_store(c, a.k.f32(), a.v.f32(), a.kv, a.batch); });
    return;
  }
  enqueue([&](const LaunchContext& c) { launch_cache_rows(c, a.k.f32(), a.kv, a.batch); });
  if (a.v.empty()) return;
  enqueue([&](const LaunchContext& c) { launch_cache_rows(c, a.v.f32(), a.kv.values(), a.batch); });
}

}  // namespace inferno::cuda
