// BF16 weights times 512 tokens with the matrix tiles: how many tokens, columns and rows are multiplied before the next
// ones, and what is prefetched. Variants differ in the order of units only, so all give the same bits.
//
//   ladder_amx_bf16 [repeats]
#include <bit>
#include <cstdlib>
#include <memory>

#include "backend/cpu/kernels/x86/amx_bf16.h"
#include "base/cpu_features.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

struct FreeAligned {
  void operator()(uint8_t* p) const { std::free(p); }
};
using Memory = std::unique_ptr<uint8_t, FreeAligned>;
Memory memory(int64_t bytes) {
  const auto rounded = static_cast<size_t>((bytes + 4095) / 4096 * 4096);
  Memory m(static_cast<uint8_t*>(std::aligned_alloc(4096, rounded)));
  std::memset(m.get(), 0, rounded);
  return m;
}

constexpr int64_t kAll = int64_t{1} << 20;  // more steps than a row has

struct Variant {
  const char* name;
  void (*multiply)(const LinearTask&);
};
#define VARIANT(...) {#__VA_ARGS__, multiply_many_bf16<TileScheduleBf16{__VA_ARGS__}>}
// Tiles of tokens, steps of a turn, panels of a slab, whether to prefetch.
constexpr Variant kVariants[] = {
    VARIANT(64, kAll, 2, false), VARIANT(64, kAll, 2, true), VARIANT(8, kAll, 16, false), VARIANT(8, kAll, 16, true),
    VARIANT(4, 8, 16, false),    VARIANT(4, 8, 16, true),    VARIANT(4, 16, 16, false),   VARIANT(4, 16, 16, true),
    VARIANT(8, 8, 16, true),     VARIANT(8, 16, 16, true),   VARIANT(8, 16, 8, true),     VARIANT(2, 16, 16, true),
    VARIANT(2, 32, 16, true),    VARIANT(16, 8, 8, true),    VARIANT(16, 16, 8, true),    VARIANT(16, 16, 2, true),
    VARIANT(64, 16, 2, true),    VARIANT(64, 16, 2, false),  VARIANT(64, 8, 2, true),     VARIANT(4, 16, 64, true),
};

bool run(int64_t tokens, int64_t k, int64_t rows, bool accumulate, int repeats) {
  Random random;
  const auto bf16 = [&] { return static_cast<uint16_t>(0x3c00 | (random.next() & 0x83ff)); };
  Memory weight = memory(rows / kPanelRows * bf16_panel_bytes(k));
  auto* values = as<uint16_t>(weight.get());
  for (int64_t i = 0; i < rows * k; ++i) values[i] = bf16();
  std::vector<float> x(static_cast<size_t>(tokens * k));
  for (float& v : x) v = static_cast<float>(static_cast<int>(random.next() % 2001) - 1000) * 1e-3F;
  Memory activations = memory(bf16_tiles_bytes(tokens, k));
  prepare_bf16_tiles(x.data(), k, tokens, k, 0, tokens, activations.get());
  Memory scratch = memory(int64_t{4} << 20);
  Memory out = memory(tokens * rows * 4);
  const auto result = [&] { return std::vector<float>(as<float>(out.get()), as<float>(out.get()) + tokens * rows); };
  const LinearTask task = {weight.get(), activations.get(),    k,    tokens,     0,
                           rows,         as<float>(out.get()), rows, accumulate, scratch.get()};
  std::vector<std::vector<double>> seconds(std::size(kVariants));
  std::vector<double> preparing;
  std::vector<float> want;
  std::vector<bool> right(std::size(kVariants));
  for (int repeat = 0; repeat < repeats; ++repeat) {  // alternating, so that noise disturbs all variants
    for (size_t v = 0; v < std::size(kVariants); ++v) {
      if (repeat == 0 || accumulate) std::memset(out.get(), 0, static_cast<size_t>(tokens * rows * 4));
      seconds[v].push_back(min_seconds(1, [&] { kVariants[v].multiply(task); }));
      if (repeat != 0) continue;
      if (v == 0) want = result();
      right[v] = same(result(), want);
    }
    preparing.push_back(
        min_seconds(1, [&] { prepare_bf16_tiles(x.data(), k, tokens, k, 0, tokens, activations.get()); }));
  }
  // One output by other means.
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    const auto value = [](uint32_t half) { return double{std::bit_cast<float>(half << 16)}; };
    sum += value(values[i / 2 * 32 + 2 * 5 + i % 2]) *
           value(as<uint16_t>(activations.get())[i / 32 * 512 + 7 * 32 + i % 32]);
  }
  bool all_right = std::fabs(sum - double{want[static_cast<size_t>(7 * rows + 5)]}) < 1e-4 * static_cast<double>(k);
  const double operations = 2.0 * static_cast<double>(tokens * rows * k);
  fmt::print("{} tokens, {} columns, {} rows{}: {}\n", tokens, k, rows, accumulate ? ", added to the output" : "",
             all_right ? "right" : "WRONG");
  const auto report = [&](const char* name, bool is_right, std::vector<double> times) {
    std::sort(times.begin(), times.end());
    fmt::print("  {:24} {} {:5.0f} {:5.0f} GFLOP/s\n", name, is_right ? "right" : "WRONG",
               operations / times[times.size() / 2] / 1e9, operations / times.front() / 1e9);
  };
  for (size_t v = 0; v < std::size(kVariants); ++v) {
    report(kVariants[v].name, right[v], seconds[v]);
    all_right = all_right && right[v];
  }
  report("(conversion of tokens)", true, preparing);
  return all_right;
}

}  // namespace
}  // namespace inferno::ladder

int main(int argc, char** argv) {
  using namespace inferno;
  if (!cpu_features().amx_bf16 || !may_use_tiles()) {
    fmt::print("this CPU has no matrix tiles of bf16\n");
    return 0;
  }
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 25;
  fmt::print("median and best of {} repeats: tiles of tokens, steps of 32 columns, panels of 16 rows, prefetch\n",
             repeats);
  bool right = ladder::run(512, 1024, 256, false, repeats);
  right = ladder::run(512, 1024, 64, true, repeats) && right;
  right = ladder::run(512, 3072, 64, true, repeats) && right;
  right = ladder::run(512, 3072, 256, false, repeats) && right;
  right = ladder::run(64, 1024, 256, false, repeats) && right;
  return right ? 0 : 1;
}
