#include "backend/cuda/cuda_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cuda/cuda.h"
#include "backend/cuda/device_rates.h"
#include "backend/cuda/error.h"
#include "backend/cuda/same_op.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno {

std::unique_ptr<Backend> make_cuda_backend() {
  return std::make_unique<cuda::CudaBackend>();
}

namespace cuda {
namespace {

constexpr size_t kPlanCapacity = 4096;
// Graphs kept: one per number of sequences that is being decoded, and a few more.
constexpr size_t kMaxGraphs = 64;
// Larger steps spend long enough on the device to hide their launches, and seldom come twice.
constexpr int32_t kMaxGraphTokens = 256;
constexpr size_t kRingBytes = size_t{4} << 20;

// Tokens of the step; 0 when no op says.
int32_t tokens_of(const std::vector<OpRecord>& ops) {
  for (const OpRecord& op : ops) {
    if (op.op() == OpId::qkv_rope_store) return op.args<QkvRopeStoreArgs>().batch.tokens;
  }
  return 0;
}

bool same_ops(const std::vector<OpRecord>& a, const std::vector<OpRecord>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_op);
}

// "linear", or of several: "one of embed, attention (INFERNO_CUDA_SYNC=1 tells which)".
std::string names_of(const std::bitset<kOpCount>& ops) {
  std::string names;
  for (int i = 0; i < kOpCount; ++i) {
    if (ops[static_cast<size_t>(i)])
      names += fmt::format("{}{}", names.empty() ? "" : ", ", op_name(static_cast<OpId>(i)));
  }
  return ops.count() > 1 ? fmt::format("one of {} (INFERNO_CUDA_SYNC=1 tells which)", names) : names;
}

}  // namespace

CudaBackend::CudaBackend() : frees_(std::make_shared<FreeCount>()) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    fail("backend \"cuda\" needs an NVIDIA GPU and its driver, and found none ({}); use --backend parallel",
         status != cudaSuccess ? cudaGetErrorString(status) : "no device");
  }
  check(cudaSetDevice(0), "choosing the device");
  cudaDeviceProp device = {};
  check(cudaGetDeviceProperties(&device, 0), "asking for the device");
  if (device.major < 8) {
    fail("backend \"cuda\" needs compute capability 8.0 or newer; {} has {}.{}", device.name, device.major,
         device.minor);
  }
  description_ = fmt::format("{}, {}, compute capability {}.{}", device.name, format_bytes(device.totalGlobalMem),
                             device.major, device.minor);
  check(cudaStreamCreateWithFlags(&context_.stream, cudaStreamDefault), "creating a stream");
  context_.sm_count = device.multiProcessorCount;
  context_.overlap = device.major >= 9;
  context_.hopper = INFERNO_CUDA_HOPPER != 0 && device.major == 9;
  step_by_step_ = std::getenv("INFERNO_CUDA_SYNC") != nullptr;
  transfers_ = std::make_unique<Transfers>(frees_);
  loader_ = std::make_unique<WeightLoader>(context_, frees_);
  ops_ = std::make_unique<OpRunner>(context_, frees_);
  plan_.reserve(kPlanCapacity);
  previous_.reserve(kPlanCapacity);
  ring_ = pinned_memory(kRingBytes);
}

CudaBackend::~CudaBackend() {
  (void)cudaStreamSynchronize(context_.stream);
  drop_graphs();
  for (cudaEvent_t event : stamps_) (void)cudaEventDestroy(event);
  for (cudaEvent_t event : replay_stamps_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  ops_.reset();
  loader_.reset();
  (void)cudaStreamDestroy(context_.stream);
}

// ---- the device

std::optional<DeviceRates> CudaBackend::device_rates() {
  if (!rates_) rates_ = measure_device_rates(context_, ops_->gemm(), frees_);
  return rates_;
}

std::optional<uint64_t> CudaBackend::free_memory() const {
  // What the backend itself will take beside the model: unpacked weights, staging, the runtime's own.
  constexpr uint64_t kReserve = uint64_t{256} << 20;
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  const uint64_t usable = free > kReserve ? free - kReserve : 0;
  const char* limit = std::getenv("INFERNO_CUDA_MEMORY");
  if (limit == nullptr) return usable;
  const std::optional<int64_t> mebibytes = parse_int(limit);
  if (!mebibytes || *mebibytes < 0 || *mebibytes > int64_t{1} << 30) {
    fail_usage("INFERNO_CUDA_MEMORY=\"{}\" is not a number of MiB", printable(limit));
  }
  return std::min(usable, static_cast<uint64_t>(*mebibytes) << 20);
}

// ---- memory and weights

Buffer CudaBackend::allocate(size_t bytes) {
  return {this, allocate_device(bytes), bytes};
}

void CudaBackend::deallocate(void* data) noexcept {
  try {
    flush_uploads();  // one of them may be for this memory
  } catch (const Error&) {
    // The device has failed: what follows will say so.
  }
  free_device(data);
  ++frees_->value;
}

void CudaBackend::upload(void* destination, const void* host, size_t bytes) {
  execute();
  delivered_ = {};
  if (transfers_->stage(destination, host, bytes)) return;
  flush_uploads();
  const auto* from = static_cast<const std::byte*>(host);
  auto* to = static_cast<std::byte*>(destination);
  while (bytes > 0) {
    if (ring_used_ == kRingBytes) {
      wait();
      ring_used_ = 0;
    }
    const size_t piece = std::min(bytes, kRingBytes - ring_used_);
    std::memcpy(ring_.get() + ring_used_, from, piece);
    check(cudaMemcpyAsync(to, ring_.get() + ring_used_, piece, cudaMemcpyHostToDevice, context_.stream), "upload");
    constexpr size_t kAlignment = 64;
    ring_used_ = std::min(kRingBytes, (ring_used_ + piece + kAlignment - 1) / kAlignment * kAlignment);
    from += piece;
    to += piece;
    bytes -= piece;
  }
}

void CudaBackend::flush_uploads() {
  if (transfers_->staged().empty()) return;
  LaunchContext context = context_;
  context.overlap = false;
  transfers_->launch_fetch(context);
  check(cudaGetLastError(), "upload");
  transfers_->on_fetch();
}

void CudaBackend::download(void* host, const void* source, size_t bytes) {
  execute();
  flush_uploads();
  const Download download{.from = source, .bytes = bytes};
  if (!Transfers::is_small(download)) {
    check(cudaMemcpyAsync(host, source, bytes, cudaMemcpyDeviceToHost, context_.stream), "download");
    wait();
    return;
  }
  if (delivered_ != download) {
    LaunchContext context = context_;
    context.overlap = false;
    transfers_->launch_deliver(context, download);
    check(cudaGetLastError(), "download");
    transfers_->on_deliver();
    delivered_ = {};
  }
  if (wanted_.empty()) wanted_ = download;
  wait_for_delivery();
  transfers_->take(host, bytes);
}

std::unique_ptr<Weight> CudaBackend::load_weight(const WeightSource& source, WeightUse uses) {
  return std::make_unique<CudaWeight>(source, uses, *loader_);
}

void* CudaBackend::scratch(size_t /*bytes*/) {
  fail("backend \"cuda\" has kernels for all fused ops and runs no default bodies");
}

// ---- steps

void CudaBackend::begin_step(StepMode mode) {
  INFERNO_CHECK(!in_step_);
  plan_.clear();
  times_.clear();
  stamped_ = 0;
  replayed_ = false;
  in_step_ = true;
  planning_ = mode == StepMode::plan;
  const auto last = std::max_element(graphs_.begin(), graphs_.end(),
                                     [](const Graph& a, const Graph& b) { return a.last_use < b.last_use; });
  followed_ = planning_ || timing_ || last == graphs_.end() ? nullptr : &*last;
  matched_ = 0;
}

void CudaBackend::end_step() {
  execute();
  followed_ = nullptr;
  in_step_ = false;
  planning_ = false;
}

void CudaBackend::synchronize() {
  execute();
  flush_uploads();
  wait();
}

void CudaBackend::wait() {
  const cudaError_t status = cudaStreamSynchronize(context_.stream);
  if (status == cudaSuccess) {
    transfers_->on_passed();
    return;
  }
  fail("cuda: {} failed: {}", under_way_.any() ? names_of(under_way_) : "a copy", cudaGetErrorString(status));
}

void CudaBackend::wait_for_delivery() {
  // The count comes a few microseconds before the stream is known to be done. A failed kernel never sends it.
  constexpr uint32_t kLooksBetweenQueries = 1U << 14;
  for (uint32_t looks = 1; !transfers_->delivered(); ++looks) {
    if (looks % kLooksBetweenQueries != 0 || cudaStreamQuery(context_.stream) == cudaErrorNotReady) continue;
    wait();
    return;
  }
  transfers_->on_passed();
}

void CudaBackend::stop_following() {
  if (followed_ == nullptr) return;
  plan_.assign(followed_->ops.begin(), followed_->ops.begin() + static_cast<ptrdiff_t>(matched_));
  followed_ = nullptr;
}

template <typename Args>
void CudaBackend::record(const Args& args) {
  if (planning_) {
    OpRecord op;
    op.assign(args);
    ops_->reserve(op);
    return;
  }
  if (followed_ != nullptr) {
    const std::vector<OpRecord>& ops = followed_->ops;
    if (matched_ < ops.size() && ops[matched_].op() == OpOf<Args>::kId && same_args(ops[matched_].args<Args>(), args)) {
      ++matched_;
      return;
    }
    stop_following();
  }
  INFERNO_CHECK(plan_.size() < kPlanCapacity);
  plan_.emplace_back().assign(args);
  if (!in_step_) execute();
}

void CudaBackend::execute() {
  if (followed_ != nullptr && matched_ == 0) return;
  if (followed_ == nullptr && plan_.empty()) return;
  const bool timed = timing_ && in_step_;
  Graph* graph = followed_;
  if (graph == nullptr || matched_ != graph->ops.size() || graph->uploads != transfers_->staged() ||
      graphs_frees_ != frees_->value) {
    stop_following();
    graph = graph_for_plan();
  }
  followed_ = nullptr;
  delivered_ = {};
  if (graph != nullptr) {
    launch(*graph, timed);
  } else {
    flush_uploads();
    under_way_.reset();
    for (const OpRecord& op : plan_) under_way_.set(static_cast<size_t>(op.op()));
  }
  wanted_ = {};
  if (graph == nullptr || timed) {
    launch_ops(timed);
    std::swap(previous_, plan_);
  }
  plan_.clear();
}

void CudaBackend::launch(Graph& graph, bool timed) {
  under_way_ = graph.kinds;
  graph.last_use = ++uses_;
  if (timed) {
    for (cudaEvent_t& event : replay_stamps_) {
      if (event == nullptr) check(cudaEventCreate(&event), "creating an event");
    }
    check(cudaEventRecord(replay_stamps_[0], context_.stream), "taking the time");
  }
  check(cudaGraphLaunch(graph.executable, context_.stream), "launching a step");
  if (timed) {
    check(cudaEventRecord(replay_stamps_[1], context_.stream), "taking the time");
    replayed_ = true;
  }
  if (!graph.uploads.empty()) transfers_->on_fetch();
  if (!graph.download.empty()) {
    transfers_->on_deliver();
    // Ops that run once more for their times would still be writing.
    if (!timed) delivered_ = graph.download;
  }
}

void CudaBackend::launch_ops(bool timed) {
  ops_->start_chain();
  if (timed && stamped_ == 0) stamp();
  for (size_t i = 0; i < plan_.size();) {
    const std::string_view op = op_name(plan_[i].op());
    const size_t launched = ops_->run(std::span(plan_).subspan(i, step_by_step_ ? 1 : plan_.size() - i));
    check(cudaGetLastError(), op);
    if (step_by_step_) check(cudaStreamSynchronize(context_.stream), op);
    for (size_t j = 0; timed && j < launched; ++j) {
      stamp();
      times_.ops.push_back(plan_[i + j]);
    }
    i += launched;
  }
}

// ---- times

void CudaBackend::set_timing(bool on) {
  timing_ = on;
  times_.clear();
  stamped_ = 0;
}

void CudaBackend::stamp() {
  if (stamped_ == stamps_.size()) {
    stamps_.emplace_back();
    check(cudaEventCreate(&stamps_.back()), "creating an event");
  }
  check(cudaEventRecord(stamps_[stamped_++], context_.stream), "taking the time");
}

const StepTimes* CudaBackend::step_times() const {
  if (times_.ops.empty()) return nullptr;
  check(cudaEventSynchronize(stamps_[stamped_ - 1]), "taking the time");
  times_.times.clear();
  times_.replay_us = 0;
  if (replayed_) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, replay_stamps_[0], replay_stamps_[1]), "taking the time");
    times_.replay_us = static_cast<double>(ms) * 1e3;
  }
  times_.begin = 0;
  uint64_t at = 0;
  for (size_t i = 0; i < times_.ops.size(); ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, stamps_[0], stamps_[i + 1]), "taking the time");
    const auto end = static_cast<uint64_t>(static_cast<double>(ms) * 1e3 * times_.ticks_per_us);
    times_.times.push_back({.begin = at, .end = end});
    at = end;
  }
  times_.end = at;
  times_.dispatches.assign(1, 0);
  return &times_;
}

// ---- graphs

CudaBackend::Graph* CudaBackend::graph_for_plan() {
  if (step_by_step_) return nullptr;
  if (graphs_frees_ != frees_->value) {
    drop_graphs();
    previous_.clear();
    graphs_frees_ = frees_->value;  // dropping freed memory of its own
  }
  for (Graph& graph : graphs_) {
    if (graph.uploads == transfers_->staged() && same_ops(graph.ops, plan_)) return &graph;
  }
  const int32_t tokens = tokens_of(plan_);
  if (tokens == 0 || tokens > kMaxGraphTokens || !same_ops(previous_, plan_)) return nullptr;
  if (graphs_.size() >= kMaxGraphs) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(),
                                         [](const Graph& a, const Graph& b) { return a.last_use < b.last_use; });
    wait();
    (void)cudaGraphExecDestroy(oldest->executable);
    graphs_.erase(oldest);
  }
  Graph graph;
  graph.ops = plan_;
  graph.uploads = transfers_->staged();
  graph.download = wanted_;
  for (const OpRecord& op : plan_) graph.kinds.set(static_cast<size_t>(op.op()));
  capture(graph);
  graphs_.push_back(std::move(graph));
  return &graphs_.back();
}

void CudaBackend::capture(Graph& graph) {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
  try {
    LaunchContext alone = context_;
    alone.overlap = false;
    if (!graph.uploads.empty()) transfers_->launch_fetch(alone);
    launch_ops(
        false);  // the first kernel waits for the fetch to end: later ones look at the batch before their own wait
    if (!graph.download.empty()) transfers_->launch_deliver(context_, graph.download);
  } catch (...) {
    (void)cudaStreamEndCapture(context_.stream, &recorded);
    if (recorded != nullptr) (void)cudaGraphDestroy(recorded);
    throw;
  }
  check(cudaStreamEndCapture(context_.stream, &recorded), "capturing a step");
  const cudaError_t status = cudaGraphInstantiate(&graph.executable, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  check(status, "capturing a step");
}

void CudaBackend::drop_graphs() {
  if (graphs_.empty()) return;
  (void)cudaStreamSynchronize(context_.stream);
  for (Graph& graph : graphs_) (void)cudaGraphExecDestroy(graph.executable);
  graphs_.clear();
}

// ---- ops

#define PRIMITIVE(name, Args)
#define FUSED(name, Args)                    \
  void CudaBackend::name(const Args& args) { \
    record(args);                            \
  }
#include "backend/op_list.inc"

void CudaBackend::kv_store(const KvStoreArgs& args) {
  record(args);
}

}  // namespace cuda
}  // namespace inferno
