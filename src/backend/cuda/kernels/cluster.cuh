// Blocks of a cluster and each other's shared memory (compute capability 9.0), as functions.
#pragma once

#include "backend/cuda/kernels/wgmma.cuh"

namespace inferno::cuda {

// A barrier of all threads of the cluster, in two parts: every thread arrives, and waits later, with its whole warp.
__device__ __forceinline__ void arrive_cluster() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// The same for a thread whose accesses before it are over: a release would wait for all that is in flight.
__device__ __forceinline__ void arrive_cluster_relaxed() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_cluster() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address in block `rank` of the cluster of what is at a shared-memory address here.
__device__ __forceinline__ uint32_t address_in(uint32_t address, int rank) {
  uint32_t there = address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}

// The same, and the thread's index, computed here: the compiler keeps no register with the result of an earlier one.
__device__ __forceinline__ uint32_t address_anew_in(uint32_t address, int rank) {
  uint32_t there = address;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}
__device__ __forceinline__ int thread_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Loads from an address_in() a block.
__device__ __forceinline__ float load_one_from(uint32_t from) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
#endif
  return v;
}
__device__ __forceinline__ float4 load_from(uint32_t from) {
  float4 v = make_float4(0, 0, 0, 0);
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
#endif
  return v;
}

// Asynchronous stores to an address_in() a block, whose barrier, also an address_in() it, counts their bytes.
__device__ __forceinline__ void send(uint32_t to, float2 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(v.x), "f"(v.y), "r"(barrier)
               : "memory");
#endif
}
__device__ __forceinline__ void send(uint32_t to, float4 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
#endif
}
// wait_barrier() for what other blocks have sent.
__device__ __forceinline__ void wait_received(uint32_t barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

}  // namespace inferno::cuda
