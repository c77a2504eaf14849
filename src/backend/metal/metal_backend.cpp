#include "backend/metal/metal_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "backend/sampling_row.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace inferno::metal {
namespace {

bool is_cache_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0;
}

// Ops that only some families have.
bool has_kernel(OpId op) {
  switch (op) {
    case OpId::layer_norm:
    case OpId::moe_mlp:
    case OpId::all_gather:
    case OpId::short_conv:
    case OpId::delta_net:
    case OpId::mamba2:
    case OpId::layer_input:
    case OpId::latent_store:
    case OpId::head_linear:
      return false;
    default:
      return true;
  }
}

std::string_view who_needs(OpId op) {
  switch (op) {
    case OpId::layer_norm:
      return "embedding models with layer norms";
    case OpId::moe_mlp:
      return "models with experts";
    case OpId::layer_input:
      return "models with inputs of layers";
    case OpId::latent_store:
    case OpId::head_linear:
      return "models with latent attention";
    default:
      return "models with a recurrent state";
  }
}

// Arguments that no kernel has.
std::string_view lacking(const OpRecord& record) {
  if (record.op() == OpId::linear) {
    const auto& a = record.args<inferno::LinearArgs>();
    if (a.out_scale != 1) return "out_scale";
    if (a.post_norm != nullptr && a.post_norm->cols() != a.w[0]->rows()) return "a norm of parts of a row";
  }
  if (record.op() == OpId::gated_mlp && record.args<GatedMlpArgs>().out_scale != 1) return "out_scale";
  return {};
}

}  // namespace

MetalBackend::MetalBackend(std::unique_ptr<Device> device)
    : device_(std::move(device)), ops_(std::make_unique<OpEncoder>(*device_)) {}

MetalBackend::~MetalBackend() {
  settle();
}

bool MetalBackend::supports(OpId op, DType dtype) const {
  if (op == OpId::attention || op == OpId::kv_store) return is_cache_type(dtype);
  return (is_fused(op) || op == OpId::activate) && has_kernel(op) && dtype != DType::i32;
}

bool MetalBackend::supports(const OpRecord& op) const {
  if (op.op() != OpId::attention) return has_kernel(op.op()) && lacking(op).empty();
  const KvLayerView& kv = op.args<inferno::AttentionArgs>().kv;
  return kv.head_dim <= kMaxHeadDim && kv.value_dim() <= kMaxHeadDim;
}

bool MetalBackend::is_wide(const OpRecord& record) const {
  switch (record.op()) {
    case OpId::linear:
      return is_quantized(record.args<inferno::LinearArgs>().w[0]->dtype());
    case OpId::qkv_rope_store:
      return is_quantized(record.args<QkvRopeStoreArgs>().w[0]->dtype());
    case OpId::gated_mlp:
      return is_quantized(record.args<GatedMlpArgs>().up->dtype()) &&
             is_quantized(record.args<GatedMlpArgs>().down->dtype());
    case OpId::logits:
      return is_quantized(record.args<LogitsArgs>().head->dtype());
    default:
      return false;
  }
}

std::optional<uint64_t> MetalBackend::free_memory() const {
  const uint64_t free = device_->free_memory();
  const char* limit = std::getenv("INFERNO_METAL_MEMORY");
  if (limit == nullptr) return free;
  const std::optional<int64_t> mebibytes = parse_int(limit);
  if (!mebibytes || *mebibytes < 0 || *mebibytes > int64_t{1} << 30) {
    fail_usage("INFERNO_METAL_MEMORY=\"{}\" is not a number of MiB", printable(limit));
  }
  return std::min(free, static_cast<uint64_t>(*mebibytes) << 20);
}

// ---- memory and weights

Buffer MetalBackend::allocate(size_t bytes) {
  return {this, device_->allocate(bytes), bytes};
}

void MetalBackend::deallocate(void* data) noexcept {
  settle();  // a step may still use it
  device_->free(data);
}

void MetalBackend::copy_cache(int32_t /*layer*/, void* destination, const void* source, size_t bytes) {
  INFERNO_CHECK(!in_step_);
  wait();
  std::memcpy(destination, source, bytes);
}

void MetalBackend::upload(void* destination, const void* host, size_t bytes) {
  wait();
  std::memcpy(destination, host, bytes);
}

void MetalBackend::download(void* host, const void* source, size_t bytes) {
  wait();
  std::memcpy(host, source, bytes);
}

std::unique_ptr<Weight> MetalBackend::load_weight(const WeightSource& source, WeightUse uses) {
  return std::make_unique<MetalWeight>(source, uses, *device_);
}

void* MetalBackend::scratch(size_t /*bytes*/) {
  fail("backend \"metal\" has kernels for all fused ops and runs no default bodies");
}

// ---- steps

void MetalBackend::begin_step(StepMode mode) {
  INFERNO_CHECK(!in_step_);
  in_step_ = true;
  planning_ = mode == StepMode::plan;
  times_.clear();
}

void MetalBackend::end_step() {
  if (!planning_) {
    device_->commit();
    ops_->on_commit();
  }
  in_step_ = false;
  planning_ = false;
}

void MetalBackend::synchronize() {
  wait();
}

void MetalBackend::wait() {
  device_->wait();
  ops_->on_commit();
}

void MetalBackend::settle() noexcept {
  try {
    wait();
  } catch (const Error& error) {
    log(LogLevel::warn, "{}", error.what());
  }
}

void MetalBackend::plan(const OpRecord& record) {
  if (!has_kernel(record.op())) {
    fail("backend \"metal\" has no kernel for {}, which {} need; choose another backend", op_name(record.op()),
         who_needs(record.op()));
  }
  if (!lacking(record).empty()) {
    fail("backend \"metal\" has no kernel for {} with {}; choose another backend", op_name(record.op()),
         lacking(record));
  }
  if (!supports(record)) {
    fail("backend \"metal\" has no kernel for {} with heads of more than {} elements; choose another backend",
         op_name(record.op()), kMaxHeadDim);
  }
  if (record.op() == OpId::sample) {
    reserve_sampling(record.args<SampleArgs>());
  } else {
    ops_->reserve(record);
  }
}

void MetalBackend::run(const OpRecord& record) {
  if (record.op() == OpId::sample) {
    draw(record.args<SampleArgs>());
  } else if (record.op() != OpId::all_reduce) {  // there is one rank
    INFERNO_CHECK(ops_->encode(record));
  }
}

template <typename Args>
void MetalBackend::record(const Args& args) {
  OpRecord op;
  op.assign(args);
  if (planning_ || !in_step_) plan(op);
  if (planning_) return;
  if (timing_ && in_step_) {
    run_timed(op);
  } else {
    run(op);
  }
  if (!in_step_) wait();
}

// ---- sampling

void MetalBackend::reserve_sampling(const SampleArgs& a) {
  const int64_t vocabulary = a.logits.cols();
  sampling_candidates_ = static_cast<size_t>(round_up(RowSampler::memory_bytes(vocabulary), 16));
  sampling_.resize(
      std::max(sampling_.size(), sampling_candidates_ + static_cast<size_t>(RowSampler::candidate_bytes(vocabulary))));
}

void MetalBackend::draw(const SampleArgs& a) {
  wait();
  std::byte* candidates = sampling_.data() + sampling_candidates_;
  for (int64_t r = 0; r < a.logits.rows(); ++r) RowSampler(a, r, sampling_.data(), candidates).run();
}

// ---- times

void MetalBackend::set_timing(bool on) {
  timing_ = on;
  times_.clear();
}

void MetalBackend::run_timed(const OpRecord& record) {
  using Clock = std::chrono::steady_clock;
  wait();
  const Clock::time_point begin = Clock::now();
  run(record);
  wait();
  const double host = std::chrono::duration<double>(Clock::now() - begin).count();
  const double seconds = record.op() == OpId::sample ? host : device_->last_seconds();
  const uint64_t from = times_.times.empty() ? 0 : times_.times.back().end;
  const uint64_t to = from + static_cast<uint64_t>(seconds * 1e6 * times_.ticks_per_us);
  times_.ops.push_back(record);
  times_.fused.push_back(0);
  times_.times.push_back({.begin = from, .end = to});
  times_.dispatches.assign(1, 0);
  times_.end = to;
}

const StepTimes* MetalBackend::step_times() const {
  return times_.ops.empty() ? nullptr : &times_;
}

// ---- ops

#define PRIMITIVE(name, Args)
#define FUSED(name, Args)                              \
  void MetalBackend::name(const inferno::Args& args) { \
    record(args);                                      \
  }
#include "backend/op_list.inc"

void MetalBackend::kv_store(const KvStoreArgs& args) {
  record(args);
}

void MetalBackend::activate(const inferno::ActivateArgs& args) {
  record(args);
}

}  // namespace inferno::metal
