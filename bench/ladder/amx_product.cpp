// Quantized weights times 512 tokens with the matrix tiles: how many tiles of tokens are multiplied by how many panels
// of rows together, when the results are stored and scaled, and what is prefetched. For blocks of 32 a product costs
// two loads of tiles, one tile instruction, one store, and then for each 16 x 16 results 48 vector instructions for the
// scales.
//
// The steps are those of the kernels (x86/amx_gemm_32*.h, x86/amx_gemm_256.h); weights are unpacked beforehand.
//
//   ladder_amx_product [repeats]
#include <cstdlib>
#include <memory>

#include "backend/cpu/kernels/x86/amx_gemm.h"
#include "backend/cpu/kernels/x86/side_gemm.h"
#include "base/cpu_features.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int64_t kTokens = 512;

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

// ---- blocks of 32

template <InterleavedFormat kFormat, TileSchedule32 kSchedule>
void multiply_32(const Slab& slab) {
  multiply_part_32<AmxPanel<kFormat>, kSchedule>(slab, 0, token_tiles(slab.task.tokens), 0, slab.count);
}

template <InterleavedFormat kFormat, TileSchedule32 kSchedule>
void pipelined(const Slab& slab) {
  multiply_pipelined_32<AmxPanel<kFormat>, kSchedule>(slab, token_tiles(slab.task.tokens), slab.count);
}

// ---- blocks of 256

template <InterleavedFormat kFormat, int64_t kTiles>
void multiply_256(const Slab& slab) {
  multiply_slab_256<kFormat, kTiles>(slab);
}

// ---- all

struct Variant {
  const char* name;
  void (*multiply_slab)(const Slab&);
  int64_t slab_panels;
};
template <InterleavedFormat kFormat>
std::vector<Variant> variants() {
  if constexpr (kFormat.block == 32) {
    constexpr auto kF = kFormat;
    return {
        {"1 x 1, 4 blocks, pass 8", multiply_32<kF, {1, 1, 4, 8, false}>, 8},
        {"1 x 2, 4 blocks, pass 8", multiply_32<kF, {1, 2, 4, 8, false}>, 8},
        {"1 x 2, 4 blocks, pass 8, prefetch", multiply_32<kF, {1, 2, 4, 8, true}>, 8},
        {"2 x 1, 4 blocks, pass 8", multiply_32<kF, {2, 1, 4, 8, false}>, 8},
        {"2 x 2, 1 block, pass 8", multiply_32<kF, {2, 2, 1, 8, false}>, 8},
        {"2 x 2, 4 blocks, pass 8", multiply_32<kF, {2, 2, 4, 8, false}>, 8},
        {"2 x 2, 4 blocks, pass 4", multiply_32<kF, {2, 2, 4, 4, false}>, 8},
        {"2 x 2, 4 blocks, pass 4, prefetch", multiply_32<kF, {2, 2, 4, 4, true}>, 8},
        {"2 x 2, 2 blocks, pass 4, prefetch", multiply_32<kF, {2, 2, 2, 4, true}>, 8},
        {"pipelined, 2 blocks, pass 4", pipelined<kF, {2, 2, 2, 4, false}>, 8},
        {"pipelined, 2 blocks, pass 4, prefetch (in use)", pipelined<kF, {2, 2, 2, 4, true}>, 8},
        {"- 64 rows in a slab", pipelined<kF, {2, 2, 2, 4, true}>, 4},
        {"- 256 rows in a slab", pipelined<kF, {2, 2, 2, 4, true}>, 16},
        {"pipelined, 2 blocks, pass 2, prefetch", pipelined<kF, {2, 2, 2, 2, true}>, 8},
        {"pipelined, 2 blocks, pass 8, prefetch", pipelined<kF, {2, 2, 2, 8, true}>, 8},
    };
  } else {
    return {
        {"groups of 1 tile", multiply_256<kFormat, 1>, 8},
        {"groups of 2 tiles", multiply_256<kFormat, 2>, 8},
        {"groups of 4 tiles (in use)", multiply_256<kFormat, 4>, 8},
        {"groups of 8 tiles", multiply_256<kFormat, 8>, 8},
    };
  }
}

// Random weights and activations of one shape, unpacked; outputs of all variants go to the same place.
template <InterleavedFormat kFormat>
struct Problem {
  using Layout = InterleavedBlock<kFormat>;
  static constexpr int kBlock = kFormat.block;
  int64_t k;
  int64_t rows;
  Memory weight = memory(rows / kInterleavedRows * (k / kBlock) * Layout::kBytes);
  Memory activations = memory(tiled_bytes<kBlock>(kTokens, k));
  Memory side_by_side = memory(side_bytes<kBlock, false, kSideTokens>(kTokens, k));
  Memory panels = memory(rows / kPanelRows * amx_panel_bytes<kFormat>(k));
  Memory scratch = memory(int64_t{1} << 20);
  std::vector<float> x = std::vector<float>(static_cast<size_t>(kTokens * k));
  std::vector<float> out = std::vector<float>(static_cast<size_t>(kTokens * rows));

  Problem(int64_t columns, int64_t outputs) : k(columns), rows(outputs) {
    Random random;
    for (float& v : x) v = static_cast<float>(static_cast<int>(random.next() % 2001) - 1000) * 1e-3F;
    const int64_t blocks = rows / kInterleavedRows * (k / kBlock);
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* block = weight.get() + b * Layout::kBytes;
      for (int i = 0; i < Layout::kBytes; ++i) block[i] = static_cast<uint8_t>(random.next() % 64);
      for (int r = 0; r < (kFormat.minimums ? 16 : 8); ++r) {
        const auto half = static_cast<uint16_t>(0x2000 + random.next() % 1024);
        std::memcpy(block + 2 * r, &half, 2);
      }
    }
    prepare();
    prepare_side<kBlock, false, kSideTokens>(x.data(), k, kTokens, k, 0, kTokens, side_by_side.get());
    unpack();
  }
  LinearTask task() {
    return {weight.get(), activations.get(), k, kTokens, 0, rows, out.data(), rows, false, scratch.get()};
  }
  void prepare() { prepare_tiles<kBlock>(x.data(), k, kTokens, k, 0, kTokens, activations.get()); }
  void unpack() {
    for (int64_t p = 0; p < rows / kPanelRows; p += kSlabPanels) {
      unpack_slab<kFormat>(task(), p * kPanelRows, kSlabPanels, panels.get() + p * amx_panel_bytes<kFormat>(k));
    }
  }
  void run_vectors() {
    LinearTask t = task();
    t.activations = side_by_side.get();
    run_side<kFormat>(t);
  }
  void run_tiles(const Variant& variant) {
    const LinearTask t = task();
    configure_tiles(kBlock == 32 ? 32 : 64);
    for (int64_t p = 0; p < rows / kPanelRows; p += variant.slab_panels) {
      variant.multiply_slab({t, p * kPanelRows, variant.slab_panels, panels.get() + p * amx_panel_bytes<kFormat>(k),
                             amx_panel_bytes<kFormat>(k), scratch.get(), as<float>(scratch.get() + 65536)});
      memory_barrier();
    }
    _tile_release();
  }
};

template <InterleavedFormat kFormat>
bool run(const char* type, int64_t k, int64_t rows, int repeats) {
  Problem<kFormat> problem(k, rows);
  const double operations = 2.0 * static_cast<double>(kTokens * rows * k);
  const auto report = [&](const char* name, bool right, std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    fmt::print("{} {:5} columns  {:46} {} {:5.0f} {:5.0f} GOP/s\n", type, k, name, right ? "right" : "WRONG",
               operations / seconds[seconds.size() / 2] / 1e9, operations / seconds.front() / 1e9);
  };
  const auto time = [](auto f) { return min_seconds(1, f); };
  const double vectors = time([&] { problem.run_vectors(); });
  const std::vector<float> want = problem.out;
  const std::vector<Variant> all = variants<kFormat>();
  std::vector<std::vector<double>> seconds(all.size());
  std::vector<double> unpacking, preparing;
  std::vector<bool> right(all.size(), true);
  for (int repeat = 0; repeat < repeats; ++repeat) {  // alternating, so that noise disturbs all variants
    for (size_t v = 0; v < all.size(); ++v) {
      if (repeat == 0) std::fill(problem.out.begin(), problem.out.end(), 0.0F);
      seconds[v].push_back(time([&] { problem.run_tiles(all[v]); }));
      if (repeat == 0) right[v] = same(problem.out, want);
    }
    unpacking.push_back(time([&] { problem.unpack(); }));
    preparing.push_back(time([&] { problem.prepare(); }));
  }
  bool all_right = true;
  report("8-bit dot products of vectors", true, {vectors});
  for (size_t v = 0; v < all.size(); ++v) {
    report(all[v].name, right[v], seconds[v]);
    all_right = all_right && right[v];
  }
  report("(unpacking alone)", true, unpacking);
  report("(conversion of the tokens alone)", true, preparing);
  return all_right;
}

}  // namespace
}  // namespace inferno::ladder

int main(int argc, char** argv) {
  using namespace inferno;
  if (!cpu_features().amx_int8 || !may_use_tiles()) {
    fmt::print("this CPU has no matrix tiles\n");
    return 0;
  }
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 25;
  fmt::print("median and best of {} repeats\n", repeats);
  bool right = ladder::run<kFormatQ8_0>("Q8_0", 1024, 1024, repeats);
  right = ladder::run<kFormatQ8_0>("Q8_0", 3072, 512, repeats) && right;
  right = ladder::run<kFormatQ4_K>("Q4_K", 1024, 1024, repeats) && right;
  right = ladder::run<kFormatQ4_K>("Q4_K", 3072, 512, repeats) && right;
  right = ladder::run<kFormatQ6_K>("Q6_K", 1024, 1024, repeats) && right;
  return right ? 0 : 1;
}
