#include "backend/cuda/cuda_weight.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/error.h"
#include "base/checked.h"
#include "quant/quant.h"

namespace inferno::cuda {
namespace {

// Pieces large enough for the bus, small beside the model.
constexpr size_t kStageBytes = size_t{16} << 20;
// The product of a larger weight fills the device by itself, and such weights would leave too much of a chunk unused.
constexpr size_t kLargestShared = size_t{8} << 20;
constexpr size_t kChunkBytes = size_t{64} << 20;

}  // namespace

WeightLoader::WeightLoader(const LaunchContext& context, std::shared_ptr<FreeCount> frees)
    : context_(context), frees_(std::move(frees)) {
  context_.overlap = false;
  for (Stage& stage : stages_) {
    check(cudaEventCreateWithFlags(&stage.done, cudaEventDisableTiming), "creating an event");
  }
}

WeightLoader::~WeightLoader() {
  for (Stage& stage : stages_) (void)cudaEventDestroy(stage.done);
}

WeightMemory WeightLoader::allocate(size_t bytes) {
  if (bytes > kLargestShared) return {std::make_shared<DeviceMemory>(bytes, frees_), 0, bytes, frees_};
  if (chunk_ == nullptr || bytes > kChunkBytes - chunk_used_) {
    chunk_ = std::make_shared<DeviceMemory>(kChunkBytes, frees_);
    chunk_used_ = 0;
  }
  const size_t offset = chunk_used_;
  chunk_used_ += static_cast<size_t>(round_up(static_cast<int64_t>(bytes), LevelOrder::kAlignment));
  return {chunk_, offset, bytes, frees_};
}

void WeightLoader::reserve(size_t bytes) {
  if (bytes <= stage_bytes_) return;
  check(cudaStreamSynchronize(context_.stream), "loading a weight");
  for (Stage& stage : stages_) {
    stage.host = pinned_memory(bytes);
    stage.device = DeviceMemory(bytes, frees_);
  }
  stage_bytes_ = bytes;
}

void WeightLoader::load(const WeightSource& source, const Planes& planes) {
  const int64_t rows = source.shape().rows();
  const int64_t row = row_bytes(source.dtype(), source.shape().cols());
  reserve(std::max(kStageBytes, static_cast<size_t>(row)));
  const int64_t rows_per_stage = std::max<int64_t>(1, static_cast<int64_t>(stage_bytes_) / row);
  int64_t piece = 0;
  for (int64_t first = 0; first < rows; first += rows_per_stage, ++piece) {
    const int64_t count = std::min(rows_per_stage, rows - first);
    const auto bytes = static_cast<size_t>(count * row);
    Stage& stage = stages_[piece % kStages];
    check(cudaEventSynchronize(stage.done), "loading a weight");
    source.read(static_cast<uint64_t>(first * row), std::span(stage.host.get(), bytes));
    if (is_quantized(source.dtype())) {
      check(cudaMemcpyAsync(stage.device.data(), stage.host.get(), bytes, cudaMemcpyHostToDevice, context_.stream),
            "loading a weight");
      launch_pack(context_, stage.device.data(), source.dtype(), first, count, planes);
    } else {
      check(cudaMemcpy2DAsync(planes.q + first * planes.row_stride, static_cast<size_t>(planes.row_stride),
                              stage.host.get(), static_cast<size_t>(row), static_cast<size_t>(row),
                              static_cast<size_t>(count), cudaMemcpyHostToDevice, context_.stream),
            "loading a weight");
    }
    check(cudaGetLastError(), "loading a weight");
    check(cudaEventRecord(stage.done, context_.stream), "loading a weight");
  }
}

CudaWeight::CudaWeight(const WeightSource& source, WeightUse uses, WeightLoader& loader) : Weight(source) {
  if (has_use(uses, WeightUse::vector)) {
    load_vector(source, loader);
    return;
  }
  if (!has_kernels(dtype())) {
    fail(
        "backend \"cuda\" has no kernels for weights of type {} ({}); use backend parallel, or a model of another type",
        dtype_name(dtype()), name());
  }
  const device::PlaneLayout layout = device::plane_layout<LevelOrder>(dtype(), rows(), cols());
  memory_ = loader.allocate(static_cast<size_t>(layout.bytes));
  auto* begin = static_cast<uint8_t*>(memory_.data());
  planes_ = {.q = begin + layout.q,
             .h = begin + layout.h,
             .s = begin + layout.s,
             .d = begin + layout.d,
             .row_stride = layout.row_stride,
             .groups = static_cast<int>(layout.groups)};
  if (planes_.row_stride > row_bytes(dtype(), cols())) {
    check(cudaMemsetAsync(memory_.data(), 0, memory_.bytes(), loader.stream()), "loading a weight");
  }
  loader.load(source, planes_);
}

void CudaWeight::load_vector(const WeightSource& source, WeightLoader& loader) {
  is_vector_ = true;
  const int64_t n = shape().elements();
  std::vector<std::byte> canonical(static_cast<size_t>(row_bytes(dtype(), n)));
  std::vector<float> values(static_cast<size_t>(n));
  source.read(0, canonical);
  dequantize_row(dtype(), canonical.data(), values.data(), n);
  memory_ = loader.allocate(values.size() * sizeof(float));
  check(cudaMemcpyAsync(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice, loader.stream()),
        "loading a weight");
  check(cudaStreamSynchronize(loader.stream()), "loading a weight");
}

void CudaWeight::read_row(int64_t row, std::span<std::byte> out) const {
  const auto fetch = [](const void* from, int64_t bytes) {
    std::vector<uint8_t> host(static_cast<size_t>(bytes));
    if (bytes > 0) check(cudaMemcpy(host.data(), from, host.size(), cudaMemcpyDeviceToHost), "reading a weight");
    return host;
  };
  if (is_vector_) {
    const std::vector<uint8_t> values = fetch(vector() + row * cols(), cols() * int64_t{sizeof(float)});
    quantize_row(dtype(), reinterpret_cast<const float*>(values.data()), out.data(), cols());
    return;
  }
  if (!is_quantized(dtype())) {
    const std::vector<uint8_t> bytes = fetch(planes_.q + row * planes_.row_stride, row_bytes(dtype(), cols()));
    std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), out.data());
    return;
  }
  const GroupBytes bytes = group_bytes(dtype());
  const device::PlaneRow<uint8_t> at = row_of(planes_, dtype(), row);
  const std::vector<uint8_t> q = fetch(at.q, int64_t{at.groups} * bytes.q);
  const std::vector<uint8_t> h = fetch(at.h, int64_t{at.groups} * bytes.h);
  const std::vector<uint8_t> s = fetch(at.s, int64_t{at.groups} * bytes.s);
  const std::vector<uint8_t> d = fetch(at.d, int64_t{at.groups} / 8 * bytes.d);
  device::unpack_row<LevelOrder>(dtype(), {q.data(), h.data(), s.data(), d.data(), at.groups},
                                 reinterpret_cast<uint8_t*>(out.data()));
}

}  // namespace inferno::cuda
