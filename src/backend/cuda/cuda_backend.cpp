#include "backend/cuda/cuda_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cuda/cuda.h"
#include "backend/cuda/device_rates.h"
#include "backend/cuda/error.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno {

std::unique_ptr<Backend> make_cuda_backend(Communicator* ranks) {
  return std::make_unique<cuda::CudaBackend>(ranks);
}

namespace cuda {
namespace {

constexpr size_t kRingBytes = size_t{4} << 20;

}  // namespace

CudaBackend::CudaBackend(Communicator* ranks) : ranks_(ranks), frees_(std::make_shared<FreeCount>()) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    fail("backend \"cuda\" needs an NVIDIA GPU and its driver, and found none ({}); use `backend` parallel",
         status != cudaSuccess ? cudaGetErrorString(status) : "no device");
  }
  if (ranks_ != nullptr) {
    nccl_wish_ = nccl_wish();
    if (const Transport* transport = ranks_->transport(); transport != nullptr) {
      device_ = transport->local().rank % devices;
    }
  }
  check(cudaSetDevice(device_), "choosing the device");
  cudaDeviceProp device = {};
  check(cudaGetDeviceProperties(&device, device_), "querying the device");
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
  sync_each_op_ = std::getenv("INFERNO_CUDA_SYNC") != nullptr;
  transfers_ = std::make_unique<Transfers>(frees_);
  loader_ = std::make_unique<WeightLoader>(context_, frees_);
  ops_ = std::make_unique<OpRunner>(context_, frees_);
  for (SeenPlan& plan : seen_) plan.ops.reserve(kPlanCapacity);
  upload_ring_ = pinned_memory(kRingBytes);
}

CudaBackend::~CudaBackend() {
  settle();
  drop_graphs();
  for (cudaEvent_t event : stamps_) (void)cudaEventDestroy(event);
  for (cudaEvent_t event : replay_stamps_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  ops_.reset();
  exchange_.reset();
  loader_.reset();
  (void)cudaStreamDestroy(context_.stream);
}

// ---- the device

void CudaBackend::use_device() const {
  if (ranks_ != nullptr) check(cudaSetDevice(device_), "choosing the device");
}

void CudaBackend::join_ranks() {
  if (ranks_ == nullptr) return;
  use_device();
  cudaDeviceProp device = {};
  check(cudaGetDeviceProperties(&device, device_), "querying the device");
  JoinedRanks joined = join_devices(*ranks_, device.uuid, nccl_wish_, frees_);
  sharing_ = joined.sharing;
  exchange_ = std::move(joined.exchange);
  ops_->set_exchange(exchange_.get());
  if (exchange_ == nullptr) return;
  description_ += fmt::format("; {} ranks exchange {}", ranks_->size(), exchange_->description());
  if (sharing_ > 1) description_ += fmt::format(", {} on this device", sharing_);
}

std::optional<DeviceRates> CudaBackend::device_rates() {
  use_device();
  if (!rates_) rates_ = measure_device_rates(context_, ops_->gemm(), frees_);
  return rates_;
}

std::optional<uint64_t> CudaBackend::free_memory() const {
  // What the backend itself allocates besides the model: unpacked weights, staging, the runtime's own.
  constexpr uint64_t kReserve = uint64_t{256} << 20;
  use_device();
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "querying free memory");
  const uint64_t usable = free > kReserve ? free - kReserve : 0;
  const char* limit = std::getenv("INFERNO_CUDA_MEMORY");
  const auto sharing = static_cast<uint64_t>(sharing_);
  if (limit == nullptr) return usable / sharing;
  const std::optional<int64_t> mebibytes = parse_int(limit);
  if (!mebibytes || *mebibytes < 0 || *mebibytes > int64_t{1} << 30) {
    fail_usage("INFERNO_CUDA_MEMORY=\"{}\" is not a number of MiB", printable(limit));
  }
  return std::min(usable, static_cast<uint64_t>(*mebibytes) << 20) / sharing;
}

// ---- memory and weights

Buffer CudaBackend::allocate(size_t bytes) {
  use_device();
  return {this, allocate_device(bytes), bytes};
}

void CudaBackend::deallocate(void* data) noexcept {
  try {
    use_device();
    flush_uploads();  // one of them may be for this memory
  } catch (const Error&) {
    // The device has failed: the next call reports it.
  }
  free_device(data);
  ++frees_->value;
}

void CudaBackend::copy_cache(int32_t /*layer*/, void* destination, const void* source, size_t bytes) {
  INFERNO_CHECK(!in_step_);
  use_device();
  // Uploads of the next step stay staged, so that its graph fetches them.
  if (transfers_->is_staged(source, bytes) || transfers_->is_staged(destination, bytes)) flush_uploads();
  delivered_ = {};
  check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, context_.stream), "copying the cache");
}

void CudaBackend::upload(void* destination, const void* host, size_t bytes) {
  use_device();
  execute();
  delivered_ = {};
  if (transfers_->stage(destination, host, bytes)) return;
  flush_uploads();
  const auto* from = static_cast<const std::byte*>(host);
  auto* to = static_cast<std::byte*>(destination);
  while (bytes > 0) {
    if (upload_ring_used_ == kRingBytes) {
      wait();
      upload_ring_used_ = 0;
    }
    const size_t piece = std::min(bytes, kRingBytes - upload_ring_used_);
    std::memcpy(upload_ring_.get() + upload_ring_used_, from, piece);
    check(cudaMemcpyAsync(to, upload_ring_.get() + upload_ring_used_, piece, cudaMemcpyHostToDevice, context_.stream),
          "upload");
    constexpr size_t kAlignment = 64;
    upload_ring_used_ = std::min(kRingBytes, (upload_ring_used_ + piece + kAlignment - 1) / kAlignment * kAlignment);
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
  use_device();
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
  if (last_seen_ != nullptr && last_seen_->download.empty()) last_seen_->download = download;
  wait_for_delivery();
  transfers_->read_delivered(host, bytes);
}

std::unique_ptr<Weight> CudaBackend::load_weight(const WeightSource& source, WeightUse uses) {
  use_device();
  return std::make_unique<CudaWeight>(source, uses, *loader_);
}

void* CudaBackend::scratch(size_t /*bytes*/) {
  fail("backend \"cuda\" has kernels for all fused ops and runs no default bodies");
}

}  // namespace cuda
}  // namespace inferno
