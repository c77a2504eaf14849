#include "backend/cuda/device_rates.h"

#include <algorithm>
#include <random>
#include <vector>

#include "backend/cuda/error.h"

namespace inferno::cuda {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;  // far beyond the second-level cache
constexpr int64_t kMatrix = 8192;                 // rows and columns; f32: half of that
constexpr int kRuns = 5;

// The best of some runs, in seconds.
template <typename F>
double best_seconds(cudaStream_t stream, F run) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "creating an event");
  check(cudaEventCreate(&end), "creating an event");
  float best = 0;
  for (int i = 0; i < kRuns; ++i) {
    check(cudaEventRecord(begin, stream), "taking the time");
    run();
    check(cudaEventRecord(end, stream), "taking the time");
    check(cudaEventSynchronize(end), "taking the time");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "taking the time");
    best = i == 0 ? ms : std::min(best, ms);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return static_cast<double>(best) / 1e3;
}

}  // namespace

DeviceRates measure_device_rates(const LaunchContext& context, Gemm& gemm, const std::shared_ptr<FreeCount>& frees) {
  const DeviceMemory memory(kReadBytes, frees);
  auto* data = static_cast<std::byte*>(memory.data());
  // Random values between one and two, in any of the types: products of zeros would run faster than those of numbers.
  std::mt19937 random(1);
  const auto fill = [&](uint32_t exponent, uint32_t mantissa) {
    std::vector<uint32_t> words(size_t{1} << 20);
    for (uint32_t& word : words) word = exponent | (static_cast<uint32_t>(random()) & mantissa);
    const size_t piece = words.size() * sizeof(uint32_t);
    for (size_t at = 0; at < kReadBytes; at += piece) {
      check(cudaMemcpyAsync(data + at, words.data(), piece, cudaMemcpyHostToDevice, context.stream), "upload");
    }
    check(cudaStreamSynchronize(context.stream), "upload");
  };
  const auto multiply = [&](DType dtype, int64_t n) {
    const auto bytes = static_cast<size_t>(row_bytes(dtype, n * n));
    Product p{.m = n, .n = n, .k = n, .in = dtype, .out = dtype, .ldx = n, .ldw = n, .ldy = n};
    p.x = data;
    p.w = data + bytes;
    p.y = data + 2 * bytes;
    const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    return operations / best_seconds(context.stream, [&] { gemm.run(p); }) / 1e9;
  };
  LaunchContext alone = context;
  alone.overlap = false;
  DeviceRates rates;
  fill(0x3f803f80U, 0x007f007fU);  // two bf16 values, or one f32
  const double seconds = best_seconds(context.stream, [&] {
    launch_read(alone, data, static_cast<int64_t>(kReadBytes), reinterpret_cast<uint32_t*>(data));
  });
  rates.read_gb = static_cast<double>(kReadBytes) / seconds / 1e9;
  rates.f32_gop = multiply(DType::f32, kMatrix / 2);
  fill(0x3f803f80U, 0x007f007fU);
  rates.bf16_gop = multiply(DType::bf16, kMatrix);
  fill(0x3c003c00U, 0x03ff03ffU);
  rates.f16_gop = multiply(DType::f16, kMatrix);
  rates.quantized_gop = rates.bf16_gop;
  return rates;
}

}  // namespace inferno::cuda
