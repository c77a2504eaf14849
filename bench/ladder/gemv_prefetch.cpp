// Q8_0 weights times one token from memory, one thread: how many distant streams are read round-robin, and the distance
// and cache level of the prefetches.
//
//   ladder_gemv_prefetch [repeats]
#include <cstdlib>
#include <memory>

#include "backend/cpu/kernels/x86/gemv.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr InterleavedFormat kFormat = kFormatQ8_0;
using Layout = InterleavedBlock<kFormat>;
constexpr int64_t kColumns = 1024;
constexpr int64_t kRows = 3072;
constexpr int64_t kMatrixBytes = kRows / kInterleavedRows * (kColumns / 32) * Layout::kBytes;
constexpr int64_t kMatrices = 200;  // 680 MB

struct Variant {
  const char* name;
  void (*run)(const LinearTask& task, int64_t token);
};
constexpr Variant kVariants[] = {
    {"8 streams, 2 KiB ahead to L2 (in use)", gemv<kFormat, 1>},
    {"4 streams, 2 KiB ahead to L1", gemv<kFormat, 1, {4, 1024, 2048, true}>},
    {"4 streams, 1 KiB ahead to L1", gemv<kFormat, 1, {4, 1024, 1024, true}>},
    {"4 streams, 4 KiB ahead to L1", gemv<kFormat, 1, {4, 1024, 4096, true}>},
    {"4 streams, 4 KiB ahead to L2", gemv<kFormat, 1, {4, 1024, 4096, false}>},
    {"4 streams, 8 KiB ahead to L2", gemv<kFormat, 1, {4, 1024, 8192, false}>},
    {"8 streams, 2 KiB ahead to L1", gemv<kFormat, 1, {8, 1024, 2048, true}>},
    {"8 streams, 4 KiB ahead to L2", gemv<kFormat, 1, {8, 1024, 4096, false}>},
    {"8 streams, turns of 512, 1 KiB ahead to L1", gemv<kFormat, 1, {8, 512, 1024, true}>},
    {"16 streams, 2 KiB ahead to L2", gemv<kFormat, 1, {16, 1024, 2048, false}>},
    {"16 streams, turns of 512, 1 KiB ahead to L2", gemv<kFormat, 1, {16, 512, 1024, false}>},
    {"2 streams, 4 KiB ahead to L2", gemv<kFormat, 1, {2, 1024, 4096, false}>},
    {"1 stream, 4 KiB ahead to L2", gemv<kFormat, 1, {1, 1024, 4096, false}>},
};

struct FreeAligned {
  void operator()(uint8_t* p) const { std::free(p); }
};

void run(int repeats) {
  constexpr auto kBytes = static_cast<size_t>(kMatrices * kMatrixBytes);
  const std::unique_ptr<uint8_t, FreeAligned> weights(static_cast<uint8_t*>(std::aligned_alloc(4096, kBytes)));
  Random random;
  for (size_t i = 0; i < kBytes; i += 4) {
    const uint32_t four = random.next() & 0x0f0f0f0fU;
    std::memcpy(weights.get() + i, &four, 4);
  }
  std::vector<float> x(kColumns, 0.5F);
  std::vector<uint8_t> row(static_cast<size_t>(rows_bytes<32>(1, kColumns)));
  prepare_rows<32>(x.data(), kColumns, 1, kColumns, 0, 1, row.data());
  std::vector<float> out(kRows);
  std::vector<float> want;
  std::vector<std::vector<double>> seconds(std::size(kVariants));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (size_t v = 0; v < std::size(kVariants); ++v) {
      seconds[v].push_back(min_seconds(1, [&] {
        for (int64_t m = 0; m < kMatrices; ++m) {
          kVariants[v].run(
              {weights.get() + m * kMatrixBytes, row.data(), kColumns, 1, 0, kRows, out.data(), kRows, false, nullptr},
              0);
        }
      }));
      if (want.empty()) want = out;
      if (!same(out, want)) fmt::print("WRONG: {}\n", kVariants[v].name);
    }
  }
  for (size_t v = 0; v < std::size(kVariants); ++v) {
    std::sort(seconds[v].begin(), seconds[v].end());
    fmt::print("{:46} {:5.1f} {:5.1f} GB/s\n", kVariants[v].name,
               static_cast<double>(kBytes) / seconds[v][seconds[v].size() / 2] / 1e9,
               static_cast<double>(kBytes) / seconds[v].front() / 1e9);
  }
}

}  // namespace
}  // namespace inferno::ladder

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 5;
  fmt::print("median and best of {} repeats\n", repeats);
  inferno::ladder::run(repeats);
  return 0;
}
