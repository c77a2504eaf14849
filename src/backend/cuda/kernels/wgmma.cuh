// Hopper's own instructions as functions: matrix products of a warpgroup, TMA copies, barriers in shared memory.
//
// They exist in code for sm_90a alone. A warpgroup is four warps that start at a multiple of four.
#pragma once

#include <cuda.h>

#include "backend/cuda/kernels/mma.cuh"

namespace inferno::cuda {

// ---- barriers in shared memory --------------------------------------------------------------------------------------
// A phase completes when all arrivals and all expected bytes are in.

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialized barriers visible to the async proxy.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and adds the bytes of copies still to come to what the phase expects.
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the phase with this parity; the phase before the first has parity 1.
__device__ __forceinline__ void wait_barrier(uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Named barrier of `threads` threads of the block; numbers 1 to 15 are free. Those that wait together do so at one
// place in the code: synccheck reports others as divergent.
__device__ __forceinline__ void sync_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// For those of the threads that need not wait.
__device__ __forceinline__ void arrive_at_barrier(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- TMA copies ----------------------------------------------------------------------------------------------------

// True for one thread of a warp, all of whose threads call this. Copies are requested under it rather than under a test
// of the thread's number: the compiler then knows that one thread is active, and takes the operands from uniform
// registers without a loop over the threads, which takes longer than the request itself.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected = 0;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected)
      :
      : "memory");
  return elected != 0;
}
// A box of a 2-D tensor, from column x and row y on, into shared memory; the barrier counts its bytes.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// The same into the blocks of the cluster whose bits are in `blocks`, at the same place in each, and counted there.
__device__ __forceinline__ void copy_box_to(uint16_t blocks, uint32_t to, const CUtensorMap* map, int x, int y,
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
      : "memory");
}
// Of what is read once in a step: L2 evicts it first.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// copy_box() with such a policy.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}
// Contiguous bytes; addresses and size are multiples of 16. They are read once in a step.
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  const uint64_t policy = evict_first_policy();
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Makes ordinary stores to shared memory visible to wgmma and TMA.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- matrix products -----------------------------------------------------------------------------------------------

// Operands in shared memory are tiles of rows of 128 bytes (64 values), swizzled in pieces of 16 bytes by the row's
// number modulo 8; a tile starts at a multiple of 1024 bytes. Rows of k: 16 of k are 32 bytes further on.
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t{1} << 16 | ((address & 0x3ffffU) >> 4);
}
// The same tiles transposed: rows are k, and the columns continue in the next tile, `tile_bytes` further on.
__device__ __forceinline__ uint64_t operand_transposed(uint32_t address, int tile_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | static_cast<uint64_t>(tile_bytes >> 4) << 16 | ((address & 0x3ffffU) >> 4);
}

// Before products whose registers other instructions have written.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps the compiler from reading results before the wait.
template <int N>
__device__ __forceinline__ void pin(float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

#define INFERNO_F4(v, i) "+f"(v[i]), "+f"(v[i + 1]), "+f"(v[i + 2]), "+f"(v[i + 3])
#define INFERNO_F16(v, i) INFERNO_F4(v, i), INFERNO_F4(v, i + 4), INFERNO_F4(v, i + 8), INFERNO_F4(v, i + 12)
#define INFERNO_D32                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define INFERNO_D64                                                                                             \
  INFERNO_D32                                                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// c (64 x N, f32) = a (64 x 16, shared) * b (N x 16, shared)^T, or added to c. Lane and registers as for mma(): value
// 4 i + 2 h + j of a lane is row 16 w + 8 h + lane / 4 of warp w, column 8 i + 2 (lane % 4) + j.
// multiply_transposed: a in registers as for mma(), b transposed (16 x N).
#define INFERNO_WGMMA(Type, name)                                                                                      \
  __device__ __forceinline__ void multiply(Type /*of*/, float(&c)[64], uint64_t a, uint64_t b, bool adds) {            \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name " {" INFERNO_D64 "}, %64, %65, p, 1, 1, 0, 0;\n}" \
        : INFERNO_F16(c, 0), INFERNO_F16(c, 16), INFERNO_F16(c, 32), INFERNO_F16(c, 48)                                \
        : "l"(a), "l"(b), "r"(adds ? 1 : 0));                                                                          \
  }                                                                                                                    \
  __device__ __forceinline__ void multiply_transposed(Type /*of*/, float(&c)[64], const uint32_t* a, uint64_t b,       \
                                                      bool adds) {                                                     \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name " {" INFERNO_D64                                  \
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"                                                                 \
        : INFERNO_F16(c, 0), INFERNO_F16(c, 16), INFERNO_F16(c, 32), INFERNO_F16(c, 48)                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds ? 1 : 0));                                      \
  }                                                                                                                    \
  __device__ __forceinline__ void multiply_transposed(Type /*of*/, float(&c)[32], const uint32_t* a, uint64_t b,       \
                                                      bool adds) {                                                     \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " {" INFERNO_D32                                   \
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                                                 \
        : INFERNO_F16(c, 0), INFERNO_F16(c, 16)                                                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds ? 1 : 0));                                      \
  }
INFERNO_WGMMA(__nv_bfloat16, "bf16")
INFERNO_WGMMA(__half, "f16")
#undef INFERNO_WGMMA
#undef INFERNO_D64
#undef INFERNO_D32
#undef INFERNO_F16
#undef INFERNO_F4

// Registers per thread from here on, for all warps of the warpgroup.
template <int kCount>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace inferno::cuda
