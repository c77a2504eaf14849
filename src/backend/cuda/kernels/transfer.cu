// Small copies from and to page-locked memory of the host.
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

constexpr int kThreads = 256;

// A row of blocks for each piece; each thread has few loads of 16 bytes, so that all are in flight at once.
__global__ void fetch_kernel(const __grid_constant__ FetchTask task) {
  let_next_start();
  wait_for_previous();
  const FetchTask::Piece& piece = task.piece[blockIdx.y];
  const uint32_t first = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t threads = gridDim.x * kThreads;
  const uint32_t wide = piece.bytes / 16;
  for (uint32_t i = first; i < wide; i += threads) {
    static_cast<uint4*>(piece.to)[i] = __ldcv(static_cast<const uint4*>(piece.from) + i);
  }
  const uint32_t rest = wide * 4 + first;
  if (rest < piece.bytes / 4) {
    static_cast<uint32_t*>(piece.to)[rest] = __ldcv(static_cast<const uint32_t*>(piece.from) + rest);
  }
}

__global__ void deliver_kernel(const uint32_t* from, int words, volatile uint32_t* to, uint32_t* count,
                               volatile uint32_t* host_count) {
  let_next_start();
  wait_for_previous();
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) to[i] = __ldcg(from + i);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t next = *count + 1;
    *count = next;
    *host_count = next;
  }
}

}  // namespace

void launch_fetch(const LaunchContext& c, const FetchTask& task) {
  constexpr uint32_t kMaxBlocks = 32;
  uint32_t most = 0;
  for (int p = 0; p < task.pieces; ++p) most = task.piece[p].bytes > most ? task.piece[p].bytes : most;
  const uint32_t blocks = divide_up<uint32_t>(most, kThreads * 16);
  launch(c,
         {dim3(blocks < 1            ? 1
               : blocks > kMaxBlocks ? kMaxBlocks
                                     : blocks,
               static_cast<unsigned>(task.pieces)),
          dim3(kThreads), 0},
         fetch_kernel, task);
}

void launch_deliver(const LaunchContext& c, const void* from, int64_t bytes, void* to, uint32_t* count,
                    uint32_t* host_count) {
  launch(c, {dim3(1), dim3(kThreads), 0}, deliver_kernel, static_cast<const uint32_t*>(from),
         static_cast<int>(bytes / 4), static_cast<volatile uint32_t*>(to), count,
         static_cast<volatile uint32_t*>(host_count));
}

}  // namespace inferno::cuda
