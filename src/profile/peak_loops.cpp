// In assembly, because a compiler would either remove such a loop or need instruction-set flags for the whole file; an
// instruction is executed only when the CPU has it. Many independent accumulators hide the latency.
#include "profile/peak_loops.h"

#include "base/cpu_features.h"

namespace inferno {
namespace {

#if defined(__aarch64__)

#define REPEAT_24(x)                                                                                                  \
  x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15) x(16) x(17) x(18) x(19) x(20) \
      x(21) x(22) x(23)
#define CLEAR(r) "movi v" #r ".4s, #0\n"
#define CLOBBERS                                                                                                     \
  "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
      "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"
#define LOOP(extension, instruction, iterations) \
  asm volatile(extension REPEAT_24(CLEAR) CLEAR(24) CLEAR(25) "1:\n" REPEAT_24(instruction) "subs %0, %0, #1\n" \
                                                                                            "b.ne 1b\n" \
               : "+r"(iterations)                                                                             \
               :                                                                                         \
               : CLOBBERS)

constexpr double kInstructions = 24;

double f32_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 8 * static_cast<double>(iterations);
#define INSTRUCTION(r) "fmla v" #r ".4s, v24.4s, v25.4s\n"
  LOOP("", INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double f16_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 16 * static_cast<double>(iterations);
#define INSTRUCTION(r) "fmla v" #r ".8h, v24.8h, v25.8h\n"
  LOOP(".arch_extension fp16\n", INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double bf16_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 32 * static_cast<double>(iterations);
#define INSTRUCTION(r) "bfmmla v" #r ".4s, v24.8h, v25.8h\n"
  LOOP(".arch_extension bf16\n", INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double sdot_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 32 * static_cast<double>(iterations);
#define INSTRUCTION(r) "sdot v" #r ".4s, v24.16b, v25.16b\n"
  LOOP(".arch armv8.2-a+dotprod\n", INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double smmla_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 64 * static_cast<double>(iterations);
#define INSTRUCTION(r) "smmla v" #r ".4s, v24.16b, v25.16b\n"
  LOOP(".arch_extension i8mm\n", INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double run(Multiply kind, int64_t iterations) noexcept {
  const CpuFeatures& cpu = cpu_features();
  if (kind == Multiply::int8 && cpu.i8mm) return smmla_loop(iterations);
  if (kind == Multiply::int8 && cpu.dotprod) return sdot_loop(iterations);
  if (kind == Multiply::bf16 && cpu.bf16) return bf16_loop(iterations);
  if (kind == Multiply::f16 && cpu.fp16) return f16_loop(iterations);
  return f32_loop(iterations);
}

#elif defined(__x86_64__)

#define REPEAT_12(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11)
#define CLEAR(r) "vxorps %%xmm" #r ", %%xmm" #r ", %%xmm" #r "\n"
#define CLOBBERS                                                                                                   \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13"
#define LOOP(instruction, iterations) \
  asm volatile(REPEAT_12(CLEAR) CLEAR(12) CLEAR(13) "1:\n" REPEAT_12(instruction) "decq %0\n"        \
                                                                                  "jnz 1b\n"         \
                                                                                  "vzeroupper\n"     \
               : "+r"(iterations)                                                                         \
               :                                                                                     \
               : CLOBBERS)

constexpr double kInstructions = 12;

double avx2_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 16 * static_cast<double>(iterations);
#define INSTRUCTION(r) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #r "\n"
  LOOP(INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double avx512_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 32 * static_cast<double>(iterations);
#define INSTRUCTION(r) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #r "\n"
  LOOP(INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double bf16_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 64 * static_cast<double>(iterations);
#define INSTRUCTION(r) "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #r "\n"
  LOOP(INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

double vnni_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 128 * static_cast<double>(iterations);
#define INSTRUCTION(r) "vpdpbusd %%zmm12, %%zmm13, %%zmm" #r "\n"
  LOOP(INSTRUCTION, iterations);
#undef INSTRUCTION
  return operations;
}

// 32 products of bytes and their sums in 16 bits, then in 32: three instructions for 64 operations.
double maddubs_loop(int64_t iterations) noexcept {
  const double operations = kInstructions * 64 * static_cast<double>(iterations);
#define INSTRUCTION(r)                     \
  "vpmaddubsw %%ymm12, %%ymm13, %%ymm14\n" \
  "vpmaddwd %%ymm12, %%ymm14, %%ymm14\n"   \
  "vpaddd %%ymm14, %%ymm" #r ", %%ymm" #r "\n"
  asm volatile(REPEAT_12(CLEAR) CLEAR(12) CLEAR(13) "1:\n" REPEAT_12(INSTRUCTION) "decq %0\n"
                                                                                  "jnz 1b\n"
                                                                                  "vzeroupper\n"
               : "+r"(iterations)
               :
               : CLOBBERS, "xmm14");
#undef INSTRUCTION
  return operations;
}

// What the instruction that configures the tiles reads: eight of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
#define TILE_LOOP(instruction, iterations)                                                               \
  asm volatile(                                                                                          \
      "ldtilecfg %1\n"                                                                                   \
      "tilezero %%tmm4\ntilezero %%tmm5\ntilezero %%tmm6\ntilezero %%tmm7\n"                             \
      "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"                             \
      "1:\n" instruction " %%tmm6, %%tmm4, %%tmm0\n" instruction " %%tmm7, %%tmm4, %%tmm1\n" instruction \
      " %%tmm6, %%tmm5, %%tmm2\n" instruction                                                            \
      " %%tmm7, %%tmm5, %%tmm3\n"                                                                        \
      "decq %0\n"                                                                                        \
      "jnz 1b\n"                                                                                         \
      "tilerelease\n"                                                                                    \
      : "+r"(iterations)                                                                                 \
      : "m"(shapes)                                                                                      \
      : "cc")

// 16 x 16 sums of 64 products each.
double int8_tile_loop(int64_t iterations) noexcept {
  const TileShapes shapes;
  const double operations = 4.0 * 16 * 16 * 64 * 2 * static_cast<double>(iterations);
  TILE_LOOP("tdpbssd", iterations);
  return operations;
}

// 16 x 16 sums of 32 products each.
double bf16_tile_loop(int64_t iterations) noexcept {
  const TileShapes shapes;
  const double operations = 4.0 * 16 * 16 * 32 * 2 * static_cast<double>(iterations);
  TILE_LOOP("tdpbf16ps", iterations);
  return operations;
}

double portable_loop(int64_t iterations) noexcept {
  volatile float sink = 0;
  float sums[32] = {};
  const float factor = sink;
  for (int64_t i = 0; i < iterations; ++i) {
    for (float& sum : sums) sum = sum * factor + factor;
  }
  for (const float sum : sums) sink = sink + sum;
  return 64 * static_cast<double>(iterations);
}

double run(Multiply kind, int64_t iterations) noexcept {
  const CpuFeatures& cpu = cpu_features();
  static const bool tiles = may_use_tiles();
  if (kind == Multiply::int8 && cpu.amx_int8 && tiles) return int8_tile_loop(iterations);
  if (kind == Multiply::bf16 && cpu.amx_bf16 && tiles) return bf16_tile_loop(iterations);
  if (kind == Multiply::int8 && cpu.avx512_vnni) return vnni_loop(iterations);
  if (kind == Multiply::int8 && cpu.avx2) return maddubs_loop(iterations);
  if (kind == Multiply::bf16 && cpu.avx512_bf16) return bf16_loop(iterations);
  if (cpu.avx512) return avx512_loop(iterations);
  return cpu.avx2 ? avx2_loop(iterations) : portable_loop(iterations);
}

#else
#error "no multiply loops for this kind of CPU"
#endif

}  // namespace

double run_multiply_loop(Multiply kind, int64_t iterations) noexcept {
  return run(kind, iterations);
}

}  // namespace inferno
