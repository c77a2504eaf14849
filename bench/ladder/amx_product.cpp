// Q8_0 weights times 512 tokens with the matrix tiles: how many tiles of tokens meet how many panels of rows, and when
// the results are scaled. A product costs two loads of tiles, one tile instruction, one store, and then for each 16 x
// 16 results 48 vector instructions for the scales; loads, stores and scaling add up, so the ladder is about fewer
// loads.
//
// The steps are those of the kernel (x86/amx_gemm.h); weights are unpacked beforehand.
#include <cstdlib>
#include <memory>

#include "backend/cpu/kernels/x86/amx_gemm.h"
#include "base/cpu_features.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr InterleavedFormat kFormat = kFormatQ8_0;
constexpr int64_t kTokens = 512;
constexpr int64_t kX = TokenTile<32>::kBytes;
constexpr int64_t kW = AmxPanel<kFormat>::kBytes;

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

// One step of the kernel: products of kBlocks blocks from block `first` on.
template <int kTiles, int kPanels>
struct Step {
  const Slab* slab = nullptr;
  int64_t tile = 0, panel = 0, first = 0, blocks = 0;

  [[nodiscard]] int64_t tile_bytes() const { return token_tile_bytes<32>(slab->task.k); }
  [[nodiscard]] const uint8_t* x() const {
    return static_cast<const uint8_t*>(slab->task.activations) + tile * tile_bytes() + first * kX;
  }
  [[nodiscard]] const uint8_t* w() const { return slab->panels + panel * slab->panel_bytes + first * kW; }
  [[nodiscard]] float* sums() const { return slab->sums + panel * kTiles * kTileTokens * kPanelRows; }

  void multiply(int64_t b, uint8_t* results) const {
    multiply_block_32<kTiles, kPanels>(x() + b * kX, tile_bytes(), w() + b * kW, slab->panel_bytes,
                                       results + b * kTiles * kPanels * kTileBytes);
  }
  // `between` is called before each block of each part.
  template <typename F>
  void scale(const uint8_t* results, F between) const {
    for (int part = 0; part < kTiles * kPanels; ++part) {
      const uint8_t* dx = x() + part / kPanels * tile_bytes() + TokenTile<32>::kD + part % kPanels * 32;
      float* kept = sums() + part * 16 * kPanelRows;
      __m512 s[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) s[i] = first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(kept + 16 * i);
      for (int64_t b = 0; b < blocks; ++b) {
        between();
        scale_block_32<kFormat, kPanels>(floats(dx + b * kX), w() + b * kW, slab->panel_bytes,
                                         results + (b * kTiles * kPanels + part) * kTileBytes, s);
      }
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_ps(kept + 16 * i, s[i]);
    }
  }
  void finish() const {
    for (int i = 0; i < kTiles * kPanels && first + blocks == slab->task.k / 32; ++i) {
      const float* finished = sums() + (i / kPanels * kTileTokens * kPanels + i % kPanels) * kPanelRows;
      finish_32<kPanels * kPanelRows>(*slab, tile + i / kPanels, panel + i % kPanels, finished);
    }
  }
};

// f(step) for all steps of a slab.
template <int kTiles, int kPanels, int kBlocks, typename F>
void for_steps(const Slab& slab, F f) {
  for (int64_t tile = 0; tile < token_tiles(slab.task.tokens); tile += kTiles) {
    for (int64_t first = 0; first < slab.task.k / 32; first += kBlocks) {
      for (int64_t panel = 0; panel < slab.count; panel += kPanels) {
        f(Step<kTiles, kPanels>{&slab, tile, panel, first, kBlocks});
      }
    }
  }
}

enum class Order { together, ahead };  // a group multiplied, then scaled; or scaled while the next one is multiplied

template <int kTiles, int kPanels, int kBlocks, Order kOrder>
void multiply(const Slab& slab) {
  constexpr int64_t kResults = kBlocks * kTiles * kPanels * kTileBytes;
  if constexpr (kOrder == Order::together) {
    for_steps<kTiles, kPanels, kBlocks>(slab, [&](const Step<kTiles, kPanels>& step) {
      for (int64_t b = 0; b < kBlocks; ++b) step.multiply(b, slab.results);
      memory_barrier();
      step.scale(slab.results, [] {});
      memory_barrier();
      step.finish();
    });
  } else {
    Step<kTiles, kPanels> before;
    int64_t number = 0;
    const auto scale_before = [&](const Step<kTiles, kPanels>* next) {
      int64_t turn = 0;
      before.scale(slab.results + (number + 1) % 2 * kResults, [&] {
        if (next != nullptr && turn % (kTiles * kPanels) == 0) {
          next->multiply(turn / (kTiles * kPanels), slab.results + number % 2 * kResults);
        }
        ++turn;
      });
      memory_barrier();
      before.finish();
    };
    for_steps<kTiles, kPanels, kBlocks>(slab, [&](const Step<kTiles, kPanels>& step) {
      if (number > 0) {
        scale_before(&step);
      } else {
        for (int64_t b = 0; b < kBlocks; ++b) step.multiply(b, slab.results);
        memory_barrier();
      }
      before = step;
      ++number;
    });
    scale_before(nullptr);
  }
}

// Random weights and activations of one shape, unpacked; outputs of all variants go to the same place.
struct Problem {
  int64_t k;
  int64_t rows;
  Memory weight = memory(rows / kInterleavedRows * (k / 32) * InterleavedBlock<kFormat>::kBytes);
  Memory activations = memory(tiled_bytes<32>(kTokens, k));
  Memory rows_of_tokens = memory(rows_bytes<32>(kTokens, k));
  Memory panels = memory(rows / kPanelRows * amx_panel_bytes<kFormat>(k));
  Memory scratch = memory(int64_t{1} << 20);
  std::vector<float> out = std::vector<float>(static_cast<size_t>(kTokens * rows));

  Problem(int64_t columns, int64_t outputs) : k(columns), rows(outputs) {
    Random random;
    std::vector<float> x(static_cast<size_t>(kTokens * k));
    for (float& v : x) v = static_cast<float>(static_cast<int>(random.next() % 2001) - 1000) * 1e-3F;
    const int64_t blocks = rows / kInterleavedRows * (k / 32);
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* block = weight.get() + b * InterleavedBlock<kFormat>::kBytes;
      for (int i = 16; i < InterleavedBlock<kFormat>::kBytes; ++i) block[i] = static_cast<uint8_t>(random.next());
      for (int r = 0; r < 8; ++r) {
        const auto half = static_cast<uint16_t>(0x2000 + random.next() % 1024);
        std::memcpy(block + 2 * r, &half, 2);
      }
    }
    prepare_tiles<32>(x.data(), k, kTokens, k, 0, kTokens, activations.get());
    prepare_rows<32>(x.data(), k, kTokens, k, 0, kTokens, rows_of_tokens.get());
    for (int64_t p = 0; p < rows / kPanelRows; ++p) {
      uint8_t* panel = panels.get() + p * amx_panel_bytes<kFormat>(k);
      for_panel_blocks<kFormat>(task(), p * kPanelRows, [panel](const uint8_t* block, int half, int64_t b) {
        unpack_amx_panel<kFormat>(block, half, panel + b * kW);
      });
    }
  }
  LinearTask task() {
    return {weight.get(), activations.get(), k, kTokens, 0, rows, out.data(), rows, false, scratch.get()};
  }
  void run_vectors() {
    LinearTask t = task();
    t.activations = rows_of_tokens.get();
    run_gemm<kFormat>(t);
  }
  void run_tiles(void (*multiply_slab)(const Slab&), int64_t slab_panels) {
    const LinearTask t = task();
    configure_tiles(32);
    for (int64_t p = 0; p < rows / kPanelRows; p += slab_panels) {
      multiply_slab({t, p * kPanelRows, slab_panels, panels.get() + p * amx_panel_bytes<kFormat>(k),
                     amx_panel_bytes<kFormat>(k), scratch.get(), as<float>(scratch.get() + 65536)});
      memory_barrier();
    }
    _tile_release();
  }
};

struct Variant {
  const char* name;
  void (*multiply_slab)(const Slab&);
  int64_t slab_panels;
};
constexpr Variant kVariants[] = {
    {"1 x 1, 4 blocks, then scaled", multiply<1, 1, 4, Order::together>, 8},
    {"1 x 1, 4 blocks ahead", multiply<1, 1, 4, Order::ahead>, 8},
    {"1 x 2, 4 blocks, then scaled", multiply<1, 2, 4, Order::together>, 8},
    {"2 x 1, 4 blocks, then scaled", multiply<2, 1, 4, Order::together>, 8},
    {"2 x 2, 1 block, then scaled", multiply<2, 2, 1, Order::together>, 8},
    {"2 x 2, 2 blocks, then scaled", multiply<2, 2, 2, Order::together>, 8},
    {"2 x 2, 2 blocks ahead", multiply<2, 2, 2, Order::ahead>, 8},
    {"2 x 2, 4 blocks, then scaled (in use)", multiply<2, 2, 4, Order::together>, 8},
    {"2 x 2, 4 blocks, then scaled; 64 rows in a slab", multiply<2, 2, 4, Order::together>, 4},
    {"2 x 2, 8 blocks, then scaled", multiply<2, 2, 8, Order::together>, 8},
};

bool run(int64_t k, int64_t rows, int runs) {
  Problem problem(k, rows);
  const double operations = 2.0 * static_cast<double>(kTokens * rows * k);
  const auto report = [&](const char* name, bool right, double seconds) {
    fmt::print("{:5} columns  {:50} {} {:5.0f} GOP/s\n", k, name, right ? "right" : "WRONG",
               operations / seconds / 1e9);
  };
  const double vectors = least_seconds(runs, [&] { problem.run_vectors(); });
  const std::vector<float> want = problem.out;
  report("8-bit dot products of vectors", true, vectors);
  bool all_right = true;
  std::vector<double> least(std::size(kVariants), INFINITY);
  std::vector<bool> right(std::size(kVariants), true);
  for (int turn = 0; turn < runs; ++turn) {  // in turns: a neighbour disturbs all of them
    for (size_t v = 0; v < std::size(kVariants); ++v) {
      std::fill(problem.out.begin(), problem.out.end(), 0.0F);
      least[v] = std::min(
          least[v], least_seconds(1, [&] { problem.run_tiles(kVariants[v].multiply_slab, kVariants[v].slab_panels); }));
      right[v] = right[v] && same(problem.out, want);
    }
  }
  for (size_t v = 0; v < std::size(kVariants); ++v) {
    report(kVariants[v].name, right[v], least[v]);
    all_right = all_right && right[v];
  }
  return all_right;
}

}  // namespace
}  // namespace inferno::ladder

int main(int argc, char** argv) {
  if (!inferno::cpu_features().amx_int8 || !inferno::may_use_tiles()) {
    fmt::print("this CPU has no matrix tiles\n");
    return 0;
  }
  const int runs = argc > 1 ? std::atoi(argv[1]) : 25;
  const bool right = inferno::ladder::run(1024, 1024, runs) && inferno::ladder::run(3072, 512, runs);
  return right ? 0 : 1;
}
