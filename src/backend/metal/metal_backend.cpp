#include "backend/metal/metal_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/device/op_kernels.h"
#include "backend/op_fields.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace inferno::metal {
namespace {

constexpr size_t kStepOps = 4096;

// Whether a matrix of the op is quantized.
class QuantizedMatrices final : public FieldVisitor {
 public:
  void weight(std::string_view /*name*/, const Weight*& w) override {
    found = found || (w != nullptr && w->shape().rank > 1 && is_quantized(w->dtype()));
  }
  bool found = false;
};

}  // namespace

MetalBackend::MetalBackend(std::unique_ptr<Device> device)
    : device_(std::move(device)), ops_(std::make_unique<OpEncoder>(*device_)), step_(kStepOps) {
  encoded_.reserve(kStepOps);
}

MetalBackend::~MetalBackend() {
  step_.begin();
  settle();
}

bool MetalBackend::supports(OpId op, DType dtype) const {
  if (op == OpId::attention || op == OpId::kv_store) return device::is_cache_type(dtype);
  if (op == OpId::add || op == OpId::matmul) return dtype == DType::f32;
  return OpEncoder::has_kernel(op) && dtype != DType::i32;
}

bool MetalBackend::supports(const OpRecord& op) const {
  return OpEncoder::has_kernel(op.op()) && OpEncoder::lacks(op).empty();
}

bool MetalBackend::is_wide(const OpRecord& record) const {
  if (record.op() == OpId::embed) return false;
  QuantizedMatrices matrices;
  visit_fields(record, matrices);
  return matrices.found;
}

int64_t MetalBackend::min_offload_rows() const {
  const char* given = std::getenv("INFERNO_METAL_MIN_ROWS");
  if (given == nullptr || *given == '\0') return Backend::min_offload_rows();
  const std::optional<int64_t> rows = parse_int(given);
  if (!rows || *rows < 1 || *rows > INT32_MAX) {
    fail_usage("INFERNO_METAL_MIN_ROWS=\"{}\" is not a number of rows from 1 on", printable(given));
  }
  return *rows;
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
  step_.begin(timing_ ? nullptr : &encoded_);
}

void MetalBackend::end_step() {
  const auto end = [this] {
    step_.begin();
    in_step_ = false;
    planning_ = false;
  };
  try {
    execute();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void MetalBackend::synchronize() {
  wait();
}

void MetalBackend::execute() {
  if (step_.empty()) return;
  try {
    if (timing_ && in_step_) {
      run_timed(step_.ops());
    } else {
      if (!step_.repeats() || encoded_frees_ != device_->frees()) encode_step();
      ops_->submit();
      device_->commit();
    }
  } catch (...) {
    step_.begin();  // what failed is not tried again
    throw;
  }
  step_.begin();
}

void MetalBackend::encode(const OpRecord& record) {
  if (record.op() != OpId::all_reduce) INFERNO_CHECK(ops_->encode(record));  // there is one rank
}

void MetalBackend::encode_step() {
  std::vector<OpRecord>& ops = step_.ops();
  encoded_.clear();
  encoded_frees_ = device_->frees();
  ops_->begin();
  for (const OpRecord& op : ops) encode(op);
  // Scratch memory that grew on the way has left only the commands after it.
  if (encoded_frees_ == device_->frees()) std::swap(encoded_, ops);
}

void MetalBackend::wait() {
  execute();
  device_->wait();
}

void MetalBackend::settle() noexcept {
  try {
    wait();
  } catch (const Error& error) {
    log(LogLevel::warn, "{}", error.what());
  }
}

void MetalBackend::plan(const OpRecord& record) {
  if (!supports(record)) {
    const std::string lacking = OpEncoder::lacks(record);
    fail("backend \"metal\" has no kernel for {}{}{}, which this model needs; choose another backend",
         op_name(record.op()), lacking.empty() ? "" : " with ", lacking);
  }
  ops_->reserve(record);
}

template <typename Args>
void MetalBackend::record(const Args& args) {
  if (planning_ || !in_step_) {
    OpRecord op;
    op.assign(args);
    plan(op);
  }
  if (planning_) return;
  step_.record(args);
  if (!in_step_) wait();
}

// ---- times

void MetalBackend::set_timing(bool on) {
  timing_ = on;
  times_.clear();
}

void MetalBackend::run_timed(const std::vector<OpRecord>& ops) {
  encoded_.clear();
  device_->wait();
  for (const OpRecord& op : ops) {
    ops_->begin();
    encode(op);
    ops_->submit();
    device_->wait();
    const uint64_t from = times_.times.empty() ? 0 : times_.times.back().end;
    const uint64_t to = from + static_cast<uint64_t>(device_->last_seconds() * 1e6 * times_.ticks_per_us);
    times_.ops.push_back(op);
    times_.fused.push_back(0);
    times_.times.push_back({.begin = from, .end = to});
    times_.end = to;
  }
  times_.dispatches.assign(1, 0);
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

void MetalBackend::add(const inferno::AddArgs& args) {
  record(args);
}

void MetalBackend::activate(const inferno::ActivateArgs& args) {
  record(args);
}

void MetalBackend::matmul(const inferno::MatmulArgs& args) {
  record(args);
}

}  // namespace inferno::metal
