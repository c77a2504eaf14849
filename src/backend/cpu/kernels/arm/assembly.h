// What the kernels written in assembly share. Operands in brackets are those of the asm statement.
#pragma once

namespace inferno {
namespace {

// Whether kernels use the loops in assembly; otherwise those in intrinsics, which give the same bits. A file that is
// compiled without them defines INFERNO_INTRINSICS_ONLY first (neon_i8mm_intrinsics.cpp).
#if defined(INFERNO_INTRINSICS_ONLY)
inline constexpr bool kUseAssembly = false;
#else
inline constexpr bool kUseAssembly = true;
#endif

}  // namespace
}  // namespace inferno

// clang-format off
#define INFERNO_ALL_VECTORS \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
  "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

#define INFERNO_LOAD(q, base, at) "ldr q" #q ", [%[" #base "], #" #at "]\n"
#define INFERNO_ZERO(v) "movi v" #v ".2d, #0\n"
#define INFERNO_ZERO_4(a, b, c, d) INFERNO_ZERO(a) INFERNO_ZERO(b) INFERNO_ZERO(c) INFERNO_ZERO(d)

// A software-pipelined loop over %[n] > 0 blocks with two stages: an iteration runs stage 0 of its block and stage 1 of
// the previous one. The macro `schedule` lists the instructions of an iteration once, each marked with its stage; the
// prologue is stage 0 alone, the epilogue stage 1 alone. `next` advances the addresses by a block.
#define INFERNO_EMIT(...) __VA_ARGS__
#define INFERNO_OMIT(...)
#define INFERNO_PIPELINED_LOOP(schedule, next) \
  schedule(INFERNO_EMIT, INFERNO_OMIT) next \
  "subs %[n], %[n], #1\n" \
  "b.eq 2f\n" \
  ".p2align 5\n" \
  "1:\n" \
  schedule(INFERNO_EMIT, INFERNO_EMIT) next \
  "subs %[n], %[n], #1\n" \
  "b.ne 1b\n" \
  "2:\n" \
  schedule(INFERNO_OMIT, INFERNO_EMIT)
// clang-format on
