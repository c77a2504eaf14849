// Matrix tiles in plain loops, as emulate_avx512.h and emulate_avx512_int.h have the vectors.
#pragma once

#include "emulate_avx512_int.h"

namespace emulated {
namespace {

struct Tile {
  alignas(64) uint8_t row[16][64];
};
struct Tiles {
  Tile tile[8];
  int rows[8];
  int row_bytes[8];
};
inline Tiles& tiles() {
  static thread_local Tiles t;
  return t;
}
inline void tile_loadconfig(const void* config) {
  const auto* c = static_cast<const uint8_t*>(config);
  for (int i = 0; i < 8; ++i) {
    uint16_t bytes = 0;
    std::memcpy(&bytes, c + 16 + 2 * i, 2);
    tiles().row_bytes[i] = bytes;
    tiles().rows[i] = c[48 + i];
    std::memset(&tiles().tile[i], 0, sizeof(Tile));
  }
}
inline void tile_zero(int t) {
  std::memset(&tiles().tile[t], 0, sizeof(Tile));
}
inline void tile_load(int t, const void* p, int64_t stride) {
  tile_zero(t);
  for (int r = 0; r < tiles().rows[t]; ++r)
    std::memcpy(tiles().tile[t].row[r], static_cast<const uint8_t*>(p) + r * stride,
                static_cast<size_t>(tiles().row_bytes[t]));
}
inline void tile_store(int t, void* p, int64_t stride) {
  for (int r = 0; r < tiles().rows[t]; ++r)
    std::memcpy(static_cast<uint8_t*>(p) + r * stride, tiles().tile[t].row[r],
                static_cast<size_t>(tiles().row_bytes[t]));
}
inline void tile_dpbssd(int c, int a, int b) {
  for (int m = 0; m < tiles().rows[c]; ++m) {
    for (int n = 0; n < tiles().row_bytes[c] / 4; ++n) {
      int32_t sum = 0;
      std::memcpy(&sum, tiles().tile[c].row[m] + 4 * n, 4);
      for (int k = 0; k < tiles().row_bytes[a]; ++k) {
        sum += static_cast<int8_t>(tiles().tile[a].row[m][k]) *
               static_cast<int8_t>(tiles().tile[b].row[k / 4][4 * n + k % 4]);
      }
      std::memcpy(tiles().tile[c].row[m] + 4 * n, &sum, 4);
    }
  }
}
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
inline float bf16(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return flushed(bits<float>(static_cast<uint32_t>(h) << 16));
}
inline void tile_dpbf16ps(int c, int a, int b) {
  for (int m = 0; m < tiles().rows[c]; ++m) {
    for (int n = 0; n < tiles().row_bytes[c] / 4; ++n) {
      float part[2] = {};
      for (int k = 0; k < tiles().row_bytes[a] / 2; ++k) {
        part[k % 2] = flushed(std::fma(bf16(tiles().tile[a].row[m] + 2 * k),
                                       bf16(tiles().tile[b].row[k / 2] + 4 * n + k % 2 * 2), part[k % 2]));
      }
      float sum = 0;
      std::memcpy(&sum, tiles().tile[c].row[m] + 4 * n, 4);
      sum = flushed(sum + flushed(part[0] + part[1]));
      std::memcpy(tiles().tile[c].row[m] + 4 * n, &sum, 4);
    }
  }
}

}  // namespace
}  // namespace emulated

#undef _tile_loadconfig
#define _tile_loadconfig emulated::tile_loadconfig
#undef _tile_zero
#define _tile_zero emulated::tile_zero
#undef _tile_loadd
#define _tile_loadd emulated::tile_load
#undef _tile_stored
#define _tile_stored emulated::tile_store
#undef _tile_dpbssd
#define _tile_dpbssd emulated::tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_dpbf16ps emulated::tile_dpbf16ps
#undef _tile_release
#define _tile_release() static_cast<void>(0)
