// Rotation of q and k, and the step's keys and values into the cache.
//
// Grid: x = chunks of 32 elements of a head, of all heads of q, then of k, then of v; y = tokens. A thread rotates and
// stores one chunk; it reads the partners of its elements from the projections, so `q` must not be `projected_q`. A
// cache without values of its own has a value_dim of 0 here.
#include "cache.h"

// Element i of a head after rotation. angles: (cos, sin) of each pair at this position.
inline float rotated(device const float* head, uint i, uint rotated_dims, bool interleaved,
                     device const float* angles) {
  if (i >= rotated_dims) return head[i];
  uint pairs = rotated_dims / 2;
  uint pair = interleaved ? i / 2 : i % pairs;
  bool second = interleaved ? i % 2 == 1 : i >= pairs;
  float a = head[interleaved ? 2 * pair : pair];
  float b = head[interleaved ? 2 * pair + 1 : pair + pairs];
  float c = angles[2 * pair];
  float s = angles[2 * pair + 1];
  return second ? a * s + b * c : a * c - b * s;
}

// 32 values as a block of Q8_0: f16 d, then 32 levels.
inline void store_q8_0(thread const float* values, device uchar* to) {
  float largest = 0.0f;
  for (uint i = 0; i < 32; ++i) largest = max(largest, precise::fabs(values[i]));
  ushort bits = float_to_f16(min(largest / 127.0f, 65504.0f));
  if (bits == 0 && largest > 0.0f) bits = 1;  // any step serves a block better than none
  float d = f16_to_float(bits);
  to[0] = uchar(bits & 255u);
  to[1] = uchar(bits >> 8);
  for (uint i = 0; i < 32; ++i) {
    float level = d > 0.0f ? precise::rint(values[i] / d) : 0.0f;
    to[2 + i] = uchar(int(min(max(level, -127.0f), 127.0f)) & 255);
  }
}

template <int kKind>
inline void store_chunk(thread const float* values, uint first, uint count, device uchar* row) {
  if (kKind == kCacheQ8_0) {
    store_q8_0(values, row + first / 32 * 34);
    return;
  }
  for (uint i = 0; i < count; ++i) {
    if (kKind == kCacheF32) ((device float*)row)[first + i] = values[i];
    if (kKind == kCacheF16) ((device ushort*)row)[first + i] = float_to_f16(values[i]);
    if (kKind == kCacheBf16) ((device ushort*)row)[first + i] = float_to_bf16(values[i]);
  }
}

template <int kKind>
kernel void rope_store(constant RopeStoreArgs& args [[buffer(0)]], device const float* projected_q [[buffer(1)]],
                       device const float* projected_k [[buffer(2)]], device const float* projected_v [[buffer(3)]],
                       device const float* table [[buffer(4)]], device const float* q_table [[buffer(5)]],
                       device const int* positions [[buffer(6)]], device const int* slots [[buffer(7)]],
                       device float* q [[buffer(8)]], device uchar* k_cache [[buffer(9)]],
                       device uchar* v_cache [[buffer(10)]], uint3 position [[thread_position_in_grid]]) {
  uint token = position.y;
  uint head_dim = args.cache.head_dim;
  uint value_dim = args.cache.value_dim;
  uint key_chunks = (head_dim + 31) / 32;
  uint value_chunks = (value_dim + 31) / 32;
  uint chunk = position.x;
  bool interleaved = args.interleaved != 0;
  ulong angle_row = ulong(positions[token]) * args.rotated_dims;
  if (chunk < args.q_heads * key_chunks) {
    ulong at = (ulong(token) * args.q_heads + chunk / key_chunks) * head_dim;
    uint first = chunk % key_chunks * 32;
    for (uint i = first; i < min(first + 32, head_dim); ++i) {
      q[at + i] = rotated(projected_q + at, i, args.rotated_dims, interleaved, q_table + angle_row);
    }
    return;
  }
  int slot = slots[token];
  if (args.stores == 0 || slot < 0) return;  // padding
  chunk -= args.q_heads * key_chunks;
  float values[32];
  if (chunk < args.cache.kv_heads * key_chunks) {
    uint head = chunk / key_chunks;
    uint first = chunk % key_chunks * 32;
    uint count = min(32u, head_dim - first);
    device const float* from = projected_k + (ulong(token) * args.cache.kv_heads + head) * head_dim;
    for (uint i = 0; i < count; ++i) {
      values[i] = rotated(from, first + i, args.rotated_dims, interleaved, table + angle_row);
    }
    store_chunk<kKind>(values, first, count, k_cache + cache_row(args.cache, ulong(slot), head) * args.cache.k_row_bytes);
    return;
  }
  chunk -= args.cache.kv_heads * key_chunks;
  if (chunk >= args.cache.kv_heads * value_chunks) return;
  uint head = chunk / value_chunks;
  uint first = chunk % value_chunks * 32;
  uint count = min(32u, value_dim - first);
  device const float* from = projected_v + (ulong(token) * args.cache.kv_heads + head) * value_dim;
  for (uint i = 0; i < count; ++i) values[i] = from[first + i];
  store_chunk<kKind>(values, first, count, v_cache + cache_row(args.cache, ulong(slot), head) * args.cache.v_row_bytes);
}

typedef decltype(rope_store<kCacheF32>) rope_store_kernel;
template [[host_name("rope_store_f32")]] kernel rope_store_kernel rope_store<kCacheF32>;
template [[host_name("rope_store_f16")]] kernel rope_store_kernel rope_store<kCacheF16>;
template [[host_name("rope_store_bf16")]] kernel rope_store_kernel rope_store<kCacheBf16>;
template [[host_name("rope_store_q8_0")]] kernel rope_store_kernel rope_store<kCacheQ8_0>;

// Grid: x = rotated elements of all heads, y = tokens. x and out are apart.
kernel void rotate_ends(constant RotateEndsArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                        device const float* table [[buffer(2)]], device const int* positions [[buffer(3)]],
                        device float* out [[buffer(4)]], uint3 position [[thread_position_in_grid]]) {
  uint head = position.x / args.rotated;
  uint i = position.x % args.rotated;
  uint token = position.y;
  if (head >= args.heads) return;
  device const float* from = x + ulong(token) * args.x_token + ulong(head) * args.x_head + args.x_kept;
  ulong to = (ulong(token) * args.heads + head) * (args.kept + args.rotated) + args.kept;
  out[to + i] = rotated(from, i, args.rotated, args.interleaved != 0, table + ulong(positions[token]) * args.rotated);
}
