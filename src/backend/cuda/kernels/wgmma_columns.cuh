// Matrix products of a warpgroup (see wgmma.cuh) of 8, 16, 32, 48, 64, 96, 128 or 192 columns.
#pragma once

#include "backend/cuda/kernels/wgmma.cuh"

namespace inferno::cuda {

// How far an operand's 16 values of `step` are after those of the first: tiles of 64 values, `rows` rows each.
__device__ __forceinline__ uint64_t operand_step(int step, int rows) {
  return static_cast<uint64_t>((step / 4 * (rows * 128) + step % 4 * 32) >> 4);
}

// c (64 x N, f32) += a (64 x 16, bf16) * b (N x 16, bf16, shared)^T; N is twice the number of a lane's results, which
// are laid out as for multiply(). The rows a are in registers as for mma(), or in shared memory.
template <int kCount>
__device__ __forceinline__ void multiply_columns(float (&c)[kCount], const uint32_t (&a)[4], uint64_t b);
template <int kCount>
__device__ __forceinline__ void multiply_columns(float (&c)[kCount], uint64_t a, uint64_t b);

#define INFERNO_F4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define INFERNO_F8(i) INFERNO_F4(i), INFERNO_F4(i + 4)
#define INFERNO_F32(i) INFERNO_F8(i), INFERNO_F8(i + 8), INFERNO_F8(i + 16), INFERNO_F8(i + 24)
#define INFERNO_D4 "%0, %1, %2, %3"
#define INFERNO_D8 INFERNO_D4 ", %4, %5, %6, %7"
#define INFERNO_D16 INFERNO_D8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define INFERNO_D24 INFERNO_D16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define INFERNO_D32 INFERNO_D16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define INFERNO_D48 INFERNO_D32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define INFERNO_D64                                                                                             \
  INFERNO_D32                                                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define INFERNO_D96                                                                                             \
  INFERNO_D64                                                                                                   \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
// The numbers are those of the operands after the results.
#define INFERNO_WGMMA(n, count, results, a0, a1, a2, a3, a4, ...)                                                      \
  template <>                                                                                                          \
  __device__ __forceinline__ void multiply_columns(float(&c)[count], const uint32_t(&a)[4], uint64_t b) {              \
    asm volatile(                                                                                                      \
        "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" results "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 \
        "}, %" #a4 ", adds, 1, 1, 0;\n}"                                                                               \
        : __VA_ARGS__                                                                                                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                         \
  }                                                                                                                    \
  template <>                                                                                                          \
  __device__ __forceinline__ void multiply_columns(float(&c)[count], uint64_t a, uint64_t b) {                         \
    asm volatile(                                                                                                      \
        "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" results "}, %" #a0 ", %" #a1                      \
        ", adds, 1, 1, 0, 0;\n}"                                                                                       \
        : __VA_ARGS__                                                                                                  \
        : "l"(a), "l"(b));                                                                                             \
  }
INFERNO_WGMMA(8, 4, INFERNO_D4, 4, 5, 6, 7, 8, INFERNO_F4(0))
INFERNO_WGMMA(16, 8, INFERNO_D8, 8, 9, 10, 11, 12, INFERNO_F8(0))
INFERNO_WGMMA(32, 16, INFERNO_D16, 16, 17, 18, 19, 20, INFERNO_F8(0), INFERNO_F8(8))
INFERNO_WGMMA(48, 24, INFERNO_D24, 24, 25, 26, 27, 28, INFERNO_F8(0), INFERNO_F8(8), INFERNO_F8(16))
INFERNO_WGMMA(64, 32, INFERNO_D32, 32, 33, 34, 35, 36, INFERNO_F32(0))
INFERNO_WGMMA(96, 48, INFERNO_D48, 48, 49, 50, 51, 52, INFERNO_F32(0), INFERNO_F8(32), INFERNO_F8(40))
INFERNO_WGMMA(128, 64, INFERNO_D64, 64, 65, 66, 67, 68, INFERNO_F32(0), INFERNO_F32(32))
INFERNO_WGMMA(192, 96, INFERNO_D96, 96, 97, 98, 99, 100, INFERNO_F32(0), INFERNO_F32(32), INFERNO_F32(64))
#undef INFERNO_WGMMA
#undef INFERNO_D96
#undef INFERNO_D64
#undef INFERNO_D48
#undef INFERNO_D32
#undef INFERNO_D24
#undef INFERNO_D16
#undef INFERNO_D8
#undef INFERNO_D4
#undef INFERNO_F32
#undef INFERNO_F8
#undef INFERNO_F4

}  // namespace inferno::cuda
