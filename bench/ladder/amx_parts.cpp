// What the parts of a product with the matrix tiles cost, data in the L1 cache, and which of them run at the
// same time: nanoseconds for each 16 x 16 x 32 block (for a tile of 64 columns where it says so).
//
//   ladder_amx_parts [repeats]
#include <cstdlib>

#include "backend/cpu/kernels/x86/amx_gemm_32.h"
#include "base/cpu_features.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int kBlocks = 4000;  // of a run
alignas(4096) uint8_t tokens[8192];
alignas(4096) uint8_t weights[8192];
alignas(4096) uint8_t results[65536];
alignas(4096) uint8_t elsewhere[65536];
alignas(64) float kept[4 * 256];

template <int kTile>
[[gnu::always_inline]] inline void only_multiply() {
  if constexpr (kTile == 0) _tile_dpbssd(0, 4, 6);
  if constexpr (kTile == 1) _tile_dpbssd(1, 4, 7);
  if constexpr (kTile == 2) _tile_dpbssd(2, 5, 6);
  if constexpr (kTile == 3) _tile_dpbssd(3, 5, 7);
}

// 16 results scaled and added to sums in registers.
[[gnu::always_inline]] inline void scale(const uint8_t* from, __m512 (&sums)[16]) {
  scale_block_32<AmxPanel<kFormatQ8_0>, 2, 0>(floats(tokens), weights, 4096, from, sums);
}

// f(block, tile 0-3 as a constant, sums) for all blocks.
template <typename F>
void for_blocks(F f) {
  __m512 sums[16];  // in registers, not in memory that the tile instructions might write to
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
  for (int b = 0; b < kBlocks; b += 4) {
    f.template operator()<0>(b, sums);
    f.template operator()<1>(b + 1, sums);
    f.template operator()<2>(b + 2, sums);
    f.template operator()<3>(b + 3, sums);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_ps(kept + 16 * i, sums[i]);
  memory_barrier();
}
constexpr TileSchedule32 kSchedule = {2, 2, 4, 4, false};

template <int kProduct>
[[gnu::always_inline]] inline void whole_product(int b, int64_t ring) {
  uint8_t* to = results + b / 4 * 4096 % ring;
  // The previous block is at the end of the ring, or directly before this one.
  multiply_and_store<kProduct, kSchedule>(tokens, 4096, weights, 4096, to, to != results);
}

// A product of its own tokens and rows, with kSums of tiles 0-3 in turns and kSides of each of 4-5 and 6-7, stored when
// the next one or, where there are four, the one after that has been multiplied.
template <int kTile, int kSums, int kSides>
[[gnu::always_inline]] inline void single_product(int b) {
  constexpr bool kSecond = kSides == 2 && kTile % 2 == 1;
  if constexpr (kSecond) {
    _tile_loadd(5, tokens + b % 4 * 512, 32);
    _tile_loadd(7, weights + b % 4 * 512, 64);
  } else {
    _tile_loadd(4, tokens + b % 4 * 512, 32);
    _tile_loadd(6, weights + b % 4 * 512, 64);
  }
  constexpr int kSum = kTile % kSums;
  if constexpr (kSum == 0) {
    _tile_zero(0);
    if constexpr (kSecond) _tile_dpbssd(0, 5, 7);
    if constexpr (!kSecond) _tile_dpbssd(0, 4, 6);
  } else if constexpr (kSum == 1) {
    _tile_zero(1);
    if constexpr (kSecond) _tile_dpbssd(1, 5, 7);
    if constexpr (!kSecond) _tile_dpbssd(1, 4, 6);
  } else if constexpr (kSum == 2) {
    _tile_zero(2);
    _tile_dpbssd(2, 4, 6);
  } else {
    _tile_zero(3);
    if constexpr (kSecond) _tile_dpbssd(3, 5, 7);
    if constexpr (!kSecond) _tile_dpbssd(3, 4, 6);
  }
  uint8_t* to = results + b % 8 * 1024;
  constexpr int kStored = kSums == 1 ? 0 : kSums == 2 ? 1 - kSum : (kSum + 2) % 4;
  if constexpr (kStored == 0) _tile_stored(0, to, 64);
  if constexpr (kStored == 1) _tile_stored(1, to, 64);
  if constexpr (kStored == 2) _tile_stored(2, to, 64);
  if constexpr (kStored == 3) _tile_stored(3, to, 64);
}

struct Part {
  const char* name;
  int depth;  // columns of a tile
  void (*run)();
};
const Part kParts[] = {
    {"tile instruction", 32, [] { for_blocks([]<int kTile>(int, auto&) { only_multiply<kTile>(); }); }},
    {"tile instruction, 64 columns", 64, [] { for_blocks([]<int kTile>(int, auto&) { only_multiply<kTile>(); }); }},
    {"load of tokens, 16 x 32", 32,
     [] { for_blocks([]<int>(int b, auto&) { _tile_loadd(4, tokens + b % 4 * 512, 32); }); }},
    {"load of rows, 8 x 64", 32,
     [] { for_blocks([]<int>(int b, auto&) { _tile_loadd(6, weights + b % 4 * 512, 64); }); }},
    {"load of rows, 16 x 64", 64,
     [] { for_blocks([]<int>(int b, auto&) { _tile_loadd(6, weights + b % 4 * 1024, 64); }); }},
    {"store, rows 64 apart", 32,
     [] { for_blocks([]<int>(int b, auto&) { _tile_stored(0, results + b % 8 * 1024, 64); }); }},
    {"store, rows 128 apart", 32,
     [] { for_blocks([]<int>(int b, auto&) { _tile_stored(0, results + b / 2 % 4 * 2048 + b % 2 * 64, 128); }); }},
    {"scaling", 32, [] { for_blocks([]<int>(int b, auto& s) { scale(elsewhere + b % 8 * 1024, s); }); }},
    {"tile instruction + scaling", 32,
     [] {
       for_blocks([]<int kTile>(int b, auto& s) {
         only_multiply<kTile>();
         scale(elsewhere + b % 8 * 1024, s);
       });
     }},
    {"load of rows + scaling", 32,
     [] {
       for_blocks([]<int>(int b, auto& s) {
         _tile_loadd(6, weights + b % 4 * 512, 64);
         scale(elsewhere + b % 8 * 1024, s);
       });
     }},
    {"store + scaling of something else", 32,
     [] {
       for_blocks([]<int>(int b, auto& s) {
         _tile_stored(0, results + b % 8 * 1024, 64);
         scale(elsewhere + (b + 2) % 4 * 1024, s);
       });
     }},
    {"store + scaling, the same in the last 12 bits of the address", 32,
     [] {
       for_blocks([]<int>(int b, auto& s) {
         _tile_stored(0, results + b % 8 * 1024, 64);
         scale(elsewhere + b % 8 * 1024, s);
       });
     }},
    {"tile instruction + store", 32,
     [] {
       for_blocks([]<int kTile>(int b, auto&) {
         only_multiply<kTile>();
         _tile_stored(0, results + b % 8 * 1024, 64);
       });
     }},
    {"single products, 3 tiles", 32,
     [] { for_blocks([]<int kTile>(int b, auto&) { single_product<kTile, 1, 1>(b); }); }},
    {"single products, 4 tiles", 32,
     [] { for_blocks([]<int kTile>(int b, auto&) { single_product<kTile, 2, 1>(b); }); }},
    {"single products, 6 tiles", 32,
     [] { for_blocks([]<int kTile>(int b, auto&) { single_product<kTile, 4, 1>(b); }); }},
    {"single products, 8 tiles", 32,
     [] { for_blocks([]<int kTile>(int b, auto&) { single_product<kTile, 4, 2>(b); }); }},
    {"product 2 x 2", 32, [] { for_blocks([]<int kTile>(int b, auto&) { whole_product<kTile>(b, 8192); }); }},
    {"product 2 x 2 + scaling of something else", 32,
     [] {
       for_blocks([]<int kTile>(int b, auto& s) {
         whole_product<kTile>(b, 8192);
         scale(elsewhere + b % 8 * 1024, s);
       });
     }},
    {"product 2 x 2 + scaling of 8 products ago", 32,
     [] {
       for_blocks([]<int kTile>(int b, auto& s) {
         whole_product<kTile>(b, 16384);
         scale(results + (b + 8) % 16 * 1024, s);
       });
     }},
    {"product 2 x 2 + scaling of 16 products ago", 32,
     [] {
       for_blocks([]<int kTile>(int b, auto& s) {
         whole_product<kTile>(b, 32768);
         scale(results + (b + 16) % 32 * 1024, s);
       });
     }},
    {"product 2 x 2, 16 blocks, then 16 scaled", 32,
     [] {
       __m512 sums[16];
#pragma GCC unroll 16
       for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
       for (int b = 0; b < kBlocks; b += 16) {
         for (int i = 0; i < 16; i += 4) {
           whole_product<0>(i, 16384);
           whole_product<1>(i + 1, 16384);
           whole_product<2>(i + 2, 16384);
           whole_product<3>(i + 3, 16384);
         }
         memory_barrier();
         for (int i = 0; i < 16; ++i) scale(results + i * 1024, sums);
         memory_barrier();
       }
#pragma GCC unroll 16
       for (int i = 0; i < 16; ++i) _mm512_storeu_ps(kept + 16 * i, sums[i]);
     }},
};

}  // namespace
}  // namespace inferno::ladder

int main(int argc, char** argv) {
  using namespace inferno;
  using namespace inferno::ladder;
  if (!cpu_features().amx_int8 || !may_use_tiles()) {
    fmt::print("this CPU has no matrix tiles\n");
    return 0;
  }
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 50;
  std::vector<std::vector<double>> seconds(std::size(kParts));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < std::size(kParts); ++i) {
      configure_tiles(kParts[i].depth);
      seconds[i].push_back(min_seconds(1, kParts[i].run));
      _tile_release();
    }
  }
  fmt::print("ns, median and best of {} repeats\n", repeats);
  for (size_t i = 0; i < std::size(kParts); ++i) {
    std::sort(seconds[i].begin(), seconds[i].end());
    fmt::print("  {:62} {:5.1f} {:5.1f}\n", kParts[i].name, seconds[i][seconds[i].size() / 2] / kBlocks * 1e9,
               seconds[i].front() / kBlocks * 1e9);
  }
  return 0;
}
