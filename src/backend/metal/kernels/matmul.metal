// The plain product of two f32 matrices: a threadgroup makes a tile of 16x16 outputs, a thread each, and reads tiles of
// 16x16 of both through threadgroup memory. Beyond the edges there are zeros.
//
// Grid: x = ceil(p / 16), y = ceil(m / 16); 256 threads.
#include "common.h"

constant uint kTile = 16;

kernel void matmul(constant MatmulArgs& args [[buffer(0)]], device const float* a [[buffer(1)]],
                   device const float* b [[buffer(2)]], device float* out [[buffer(3)]],
                   uint3 position [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float tile_a[16 * 16];
  threadgroup float tile_b[16 * 16];
  uint y = thread_index / kTile;
  uint x = thread_index % kTile;
  uint row = position.y * kTile + y;
  uint col = position.x * kTile + x;
  float sum = 0.0f;
  for (uint k = 0; k < args.n; k += kTile) {
    tile_a[thread_index] = row < args.m && k + x < args.n ? a[ulong(row) * args.n + k + x] : 0.0f;
    tile_b[thread_index] = k + y < args.n && col < args.p ? b[ulong(k + y) * args.p + col] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < kTile; ++i) sum += tile_a[y * kTile + i] * tile_b[i * kTile + x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (row < args.m && col < args.p) out[ulong(row) * args.p + col] = sum;
}
