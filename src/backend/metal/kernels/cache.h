// The cache's layout (kv_view.h): rows [page][kv_head][offset in page], by slot = page * page_size + offset.
#ifndef INFERNO_METAL_CACHE_H
#define INFERNO_METAL_CACHE_H
#include "common.h"

enum CacheKind { kCacheF32, kCacheF16, kCacheBf16, kCacheQ8_0 };

// Which row of keys or of values that of `head` at `slot` is.
inline ulong cache_row(constant CacheArgs& cache, ulong slot, uint head) {
  return (slot / cache.page_size * cache.kv_heads + head) * cache.page_size + slot % cache.page_size;
}

// Element i of a row. Q8_0 blocks have 34 bytes: f16 d, then 32 levels.
template <int kKind>
inline float cache_value(device const uchar* row, uint i) {
  if (kKind == kCacheF32) return ((device const float*)row)[i];
  if (kKind == kCacheQ8_0) {
    device const uchar* block = row + i / 32 * 34;
    return f16_to_float(*(device const ushort*)block) * float(char(block[2 + i % 32]));
  }
  ushort bits = ((device const ushort*)row)[i];
  return kKind == kCacheF16 ? f16_to_float(bits) : bf16_to_float(bits);
}
#endif
