// Drawing tokens on the device, as backend/sampling.h defines it.
//
// A first kernel reads the logits once: it applies the repetition penalty and finds each chunk's largest logit. A
// second one, one block per row, ends a greedy row there; otherwise it selects (sample_select.cuh).
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/sample_select.cuh"

namespace inferno::cuda {
namespace {

constexpr int kChunk = 1024;  // logits per block of the first kernel
constexpr int kFirstThreads = 256;

__device__ __forceinline__ uint64_t mix(uint64_t x) {  // as in backend/sampling.cpp
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
__device__ __forceinline__ float uniform(const SampleParams& p) {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(p.sequence)) << 32) | static_cast<uint32_t>(p.position);
  return static_cast<float>(mix(mix(p.seed) ^ key) >> 40) * 0x1p-24F;
}

// ---- first kernel: penalty, largest of each chunk

__global__ void scan_kernel(const float* logits, int64_t vocabulary, const SampleParams* params, const int32_t* history,
                            int chunks, uint64_t* largest, float* adjusted) {
  __shared__ float values[kChunk];
  __shared__ uint64_t tops[kFirstThreads / kWarp];
  let_next_start();
  const int64_t row = blockIdx.y;
  const int64_t first = int64_t{blockIdx.x} * kChunk;
  const int count = static_cast<int>(min(int64_t{kChunk}, vocabulary - first));
  const SampleParams p = params[row];
  wait_for_previous();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kFirstThreads) {
    const float x = load_fresh(logits + row * vocabulary + first + i);
    values[i] = isnan(x) ? -INFINITY : x;
  }
  __syncthreads();
  const int seen = min(p.history_length, kSampleHistory);
  if (p.repeat_penalty != 1.0F && static_cast<int>(threadIdx.x) < seen) {
    const int32_t* recent = history + row * kSampleHistory;
    const int32_t id = recent[threadIdx.x];
    bool once = id >= first && id < first + count;
    for (int i = 0; once && i < static_cast<int>(threadIdx.x); ++i) once = recent[i] != id;
    if (once) {
      const float x = values[id - first];
      values[id - first] = x > 0 ? __fdiv_rn(x, p.repeat_penalty) : x * p.repeat_penalty;
    }
  }
  __syncthreads();
  const bool keeps = p.temperature > 0;
  uint64_t top = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kFirstThreads) {
    const uint64_t key = key_of(values[i], static_cast<int32_t>(first) + i);
    top = key > top ? key : top;
    if (keeps) __stcg(adjusted + row * vocabulary + first + i, values[i]);
  }
  top = warp_max_key(top);
  if (threadIdx.x % kWarp == 0) tops[threadIdx.x / kWarp] = top;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kFirstThreads / kWarp; ++w) top = tops[w] > top ? tops[w] : top;
    __stcg(reinterpret_cast<unsigned long long*>(largest) + row * chunks + blockIdx.x, top);
  }
}

// ---- second kernel

__global__ void __launch_bounds__(kDrawThreads)
    draw_kernel(const float* adjusted, int vocabulary, const SampleParams* params, int chunks, const uint64_t* largest,
                int32_t* out) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  let_next_start();
  const int64_t row = blockIdx.x;
  const SampleParams p = params[row];
  wait_for_previous();
  if (threadIdx.x < kWarp) {
    uint64_t top = 0;
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kWarp) {
      const uint64_t key = __ldcg(reinterpret_cast<const unsigned long long*>(largest) + row * chunks + i);
      top = key > top ? key : top;
    }
    top = warp_max_key(top);
    if (threadIdx.x == 0) s.top = top;
  }
  __syncthreads();
  const uint64_t top = s.top;
  if (p.temperature <= 0) {
    if (threadIdx.x == 0) out[row] = id_of(top);
    return;
  }
  const float best = logit_of(top);
  Selector select{s, adjusted + row * vocabulary, vocabulary, best};
  const bool by_rank = p.top_k > 0 || p.top_p < 1;
  if (p.top_k > 0 && p.top_k < vocabulary) {
    if (p.top_k <= chunks && chunks <= kListCapacity) select.start_from(largest + row * chunks, chunks, p.top_k);
    select.cut = select.find({true, best, 1}, {static_cast<uint64_t>(p.top_k), -1}, false);
  }
  if (p.top_p < 1) {
    select.cut = select.find({false, best, 1}, {0, p.top_p}, false);
  }
  if (p.min_p > 0) {
    const uint64_t floor = static_cast<uint64_t>(ordered_bits(best + logf(p.min_p))) << 32;
    select.cut = floor > select.cut ? floor : select.cut;
  }
  const Weighting weight{false, best, 1.0F / p.temperature};
  const int32_t id = by_rank ? id_of(select.find(weight, {0, uniform(p)}, true))
                             : select.find_by_id(weight, share_of(select.sum(weight), uniform(p)));
  if (threadIdx.x == 0) out[row] = id;
}

int64_t chunk_count(int64_t vocabulary) {
  return divide_up<int64_t>(vocabulary, kChunk);
}

}  // namespace

int64_t sample_scratch_bytes(int rows, int64_t vocabulary) {
  return rows * (chunk_count(vocabulary) * 8 + vocabulary * 4);
}

void launch_sample(const LaunchContext& c, const float* logits, int rows, int64_t vocabulary,
                   const SampleParams* params, const int32_t* history, void* scratch, int32_t* out) {
  const auto chunks = static_cast<int>(chunk_count(vocabulary));
  auto* largest = static_cast<uint64_t*>(scratch);
  auto* adjusted = reinterpret_cast<float*>(largest + int64_t{rows} * chunks);
  launch(c, {dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(rows)), dim3(kFirstThreads), 0}, scan_kernel,
         logits, vocabulary, params, history, chunks, largest, adjusted);
  launch(c, {dim3(static_cast<unsigned>(rows)), dim3(kDrawThreads), static_cast<int>(sizeof(Shared))}, draw_kernel,
         adjusted, static_cast<int>(vocabulary), params, chunks, largest, out);
}

}  // namespace inferno::cuda
