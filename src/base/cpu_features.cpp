#include "base/cpu_features.h"

#if defined(__aarch64__)
#include "base/platform.h"
#elif defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace inferno {
namespace {

#if defined(__aarch64__)

CpuFeatures detect() {
  return platform::arm_features();
}

#elif defined(__x86_64__)

struct Leaf {
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
};
Leaf leaf(uint32_t number, uint32_t part) {
  Leaf got;
  if (__get_cpuid_count(number, part, &got.a, &got.b, &got.c, &got.d) == 0) return {};
  return got;
}
bool bit(uint32_t word, int index) {
  return ((word >> index) & 1U) != 0;
}
// Which register sets the operating system saves. Written out: the intrinsic would need an instruction-set flag.
uint64_t saved_state() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

CpuFeatures detect() {
  const Leaf one = leaf(1, 0);
  if (!bit(one.c, 27)) return {};  // no xgetbv
  const uint64_t saved = saved_state();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000;
  const Leaf seven = leaf(7, 0);
  const Leaf seven_1 = leaf(7, 1);
  CpuFeatures has;
  has.avx2 = ymm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);
  has.avx512 = has.avx2 && zmm && bit(seven.b, 16) && bit(seven.b, 30) && bit(seven.b, 17) && bit(seven.b, 31);
  has.avx512_vnni = has.avx512 && bit(seven.c, 11);
  has.avx512_bf16 = has.avx512 && bit(seven_1.a, 5);
  has.amx_int8 = has.avx512 && tiles && bit(seven.d, 24) && bit(seven.d, 25);
  has.amx_bf16 = has.avx512 && tiles && bit(seven.d, 24) && bit(seven.d, 22);
  return has;
}

#else

CpuFeatures detect() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<std::string> cpu_feature_names() {
  const CpuFeatures& cpu = cpu_features();
  std::vector<std::string> names;
  const auto add = [&](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(cpu.neon, "neon");
  add(cpu.dotprod, "dotprod");
  add(cpu.i8mm, "i8mm");
  add(cpu.bf16, "bf16");
  add(cpu.fp16, "fp16");
  add(cpu.fp16fml, "fp16fml");
  add(cpu.avx2, "avx2");
  add(cpu.avx512, "avx512");
  add(cpu.avx512_vnni, "avx512_vnni");
  add(cpu.avx512_bf16, "avx512_bf16");
  add(cpu.amx_int8, "amx_int8");
  add(cpu.amx_bf16, "amx_bf16");
  return names;
}

bool may_use_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  if (!cpu_features().amx_int8 && !cpu_features().amx_bf16) return false;
  // Of arch_prctl; older system headers do not name them.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace inferno
