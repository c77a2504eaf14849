#include "backend/cpu/kernels/select.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <string>

#include "backend/op_args.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

static_assert(kKernelActivations == kActivations);
static_assert(static_cast<int>(KernelActivation::softplus) == static_cast<int>(Activation::softplus));

// One row per instruction set, from the lowest up: each table starts as a copy of the one before it.
struct Isa {
  std::string_view name;
  bool (*available)(const CpuFeatures& cpu);
  void (*fill)(KernelTable& table);  // null: for another processor family, not in this build
};

#if defined(__aarch64__)
#define INFERNO_ARM(function) function
#else
#define INFERNO_ARM(function) nullptr
#endif
#if defined(__x86_64__)
#define INFERNO_X86(function) function
#else
#define INFERNO_X86(function) nullptr
#endif

bool has_i8mm(const CpuFeatures& cpu) {
  return cpu.neon && cpu.dotprod && cpu.i8mm && cpu.bf16 && cpu.fp16 && cpu.fp16fml;
}

constexpr Isa kIsas[] = {
    {"scalar", [](const CpuFeatures&) { return true; }, fill_scalar},
    {"neon", [](const CpuFeatures& cpu) { return cpu.neon; }, INFERNO_ARM(fill_neon)},
    {"neon_dotprod", [](const CpuFeatures& cpu) { return cpu.neon && cpu.dotprod; }, INFERNO_ARM(fill_neon_dotprod)},
    {"neon_i8mm_intrinsics", has_i8mm, INFERNO_ARM(fill_neon_i8mm_intrinsics)},
    {"neon_i8mm", has_i8mm, INFERNO_ARM(fill_neon_i8mm)},
    {"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; }, INFERNO_X86(fill_avx2)},
    {"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; }, INFERNO_X86(fill_avx512)},
    {"avx512_vnni", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }, INFERNO_X86(fill_avx512_vnni)},
    {"amx",
     [](const CpuFeatures& cpu) {
       return cpu.avx512_vnni && cpu.avx512_bf16 && cpu.amx_int8 && cpu.amx_bf16 && may_use_tiles();
     },
     INFERNO_X86(fill_amx)},
};

struct Tables {
  std::deque<KernelTable> memory;  // addresses stay
  std::vector<const KernelTable*> available;
};

const Tables& tables() {
  static const Tables instance = [] {
    Tables t;
    KernelTable table{};
    for (const Isa& isa : kIsas) {
      if (isa.fill == nullptr || !isa.available(cpu_features())) continue;
      isa.fill(table);
      t.available.push_back(&t.memory.emplace_back(table));
    }
    return t;
  }();
  return instance;
}

}  // namespace

const std::vector<const KernelTable*>& available_kernels() {
  return tables().available;
}

const KernelTable& scalar_kernels() {
  return *available_kernels().front();
}

const KernelTable* find_kernels(std::string_view name) {
  const auto& all = available_kernels();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto* table) { return name == table->name; });
  return found == all.end() ? nullptr : *found;
}

const KernelTable& kernels_named(std::string_view name) {
  if (const KernelTable* table = find_kernels(name)) return *table;
  std::string here;
  for (const KernelTable* table : available_kernels()) {
    if (!here.empty()) here += ", ";
    here += table->name;
  }
  for (const Isa& isa : kIsas) {
    if (name == isa.name) fail_usage("this CPU cannot run the {} kernels (INFERNO_ISA; it can run: {})", name, here);
  }
  fail_usage("unknown kernels \"{}\" (INFERNO_ISA; this CPU can run: {})", printable(name), here);
}

const KernelTable& best_kernels() {
  const char* forced = std::getenv("INFERNO_ISA");
  if (forced != nullptr && *forced != '\0') return kernels_named(trim(forced));
  return *available_kernels().back();
}

}  // namespace inferno
