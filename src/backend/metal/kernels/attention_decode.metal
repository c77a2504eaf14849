// Attention of single queries: each over all positions that it sees, cut into `splits` parts that are merged by a second
// kernel.
//
// A threadgroup is one part of one head of one query. Its simdgroups take turns at positions; the lanes of a simdgroup
// share the elements of a head, kElements each (8, or 18 for heads of up to 576). Every simdgroup keeps a maximum, a
// sum and an output of its own (online softmax) and they are merged at the end.
#include "activations.h"
#include "visible.h"

constant uint kSimdgroups = 4;

// A partial result is value_dim outputs, then the maximum and the sum: partials [query][head][split][value_dim + 2].
template <int kKind, uint kElements>
kernel void attention_part(constant AttentionArgs& args [[buffer(0)]], device const float* q [[buffer(1)]],
                           device const uchar* k_cache [[buffer(2)]], device const uchar* v_cache [[buffer(3)]],
                           device const int* positions [[buffer(4)]], device const int* sequences [[buffer(5)]],
                           device const int* lengths [[buffer(6)]], device const int* block_table [[buffer(7)]],
                           device float* partials [[buffer(8)]],
                           uint3 group [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float maxima[4];
  threadgroup float sums[4];
  threadgroup float outputs[4 * 32 * kElements];
  uint head = group.x;
  uint query = group.y;
  uint split = group.z;
  uint head_dim = args.cache.head_dim;
  uint value_dim = args.cache.value_dim;
  uint kv_head = head / (args.q_heads / args.cache.kv_heads);
  int position = positions[query];
  int sequence = sequences[query];
  int length = lengths[sequence];
  int per_split = (length + int(args.splits) - 1) / int(args.splits);
  int begin = int(split) * per_split;
  int end = min(begin + per_split, length);

  float own_q[kElements];
  float own_out[kElements];
  for (uint e = 0; e < kElements; ++e) {
    uint i = e * 32 + lane;
    own_q[e] = i < head_dim ? q[(ulong(query) * args.q_heads + head) * head_dim + i] * args.scale : 0.0f;
    own_out[e] = 0.0f;
  }
  float maximum = -INFINITY;
  float sum = 0.0f;
  for (int key = begin + int(simdgroup); key < end; key += int(kSimdgroups)) {
    if (!is_visible(args, position, key)) continue;
    ulong row = row_of(args, block_table, sequence, uint(key), kv_head);
    device const uchar* key_row = k_cache + row * args.cache.k_row_bytes;
    device const uchar* value_row = v_cache + row * args.cache.v_row_bytes;
    float product = 0.0f;
    for (uint e = 0; e < kElements; ++e) {
      uint i = e * 32 + lane;
      if (i < head_dim) product += own_q[e] * cache_value<kKind>(key_row, i);
    }
    float score = capped(args, simd_sum(product));
    float top = max(maximum, score);
    float keep = precise::exp(maximum - top);  // 0 for the first: exp(-inf)
    float weight = precise::exp(score - top);
    sum = sum * keep + weight;
    for (uint e = 0; e < kElements; ++e) {
      uint i = e * 32 + lane;
      if (i < value_dim) own_out[e] = own_out[e] * keep + weight * cache_value<kKind>(value_row, i);
    }
    maximum = top;
  }
  if (lane == 0) {
    maxima[simdgroup] = maximum;
    sums[simdgroup] = sum;
  }
  for (uint e = 0; e < kElements; ++e) outputs[(simdgroup * kElements + e) * 32 + lane] = own_out[e];
  threadgroup_barrier(mem_flags::mem_threadgroup);

  float top = -INFINITY;
  for (uint s = 0; s < kSimdgroups; ++s) top = max(top, maxima[s]);
  float factors[4];
  float total = 0.0f;
  for (uint s = 0; s < kSimdgroups; ++s) {
    factors[s] = maxima[s] == -INFINITY ? 0.0f : precise::exp(maxima[s] - top);
    total += sums[s] * factors[s];
  }
  device float* partial = partials + ((ulong(query) * args.q_heads + head) * args.splits + split) * (value_dim + 2);
  for (uint i = simdgroup * 32 + lane; i < value_dim; i += kSimdgroups * 32) {
    float value = 0.0f;
    for (uint s = 0; s < kSimdgroups; ++s) value += outputs[s * 32 * kElements + i] * factors[s];
    partial[i] = value;
  }
  if (simdgroup == 0 && lane == 0) {
    partial[value_dim] = top;
    partial[value_dim + 1] = total;
  }
}

typedef decltype(attention_part<kCacheF32, 8>) attention_part_kernel;
template [[host_name("attention_part_f32")]] kernel attention_part_kernel attention_part<kCacheF32, 8>;
template [[host_name("attention_part_f16")]] kernel attention_part_kernel attention_part<kCacheF16, 8>;
template [[host_name("attention_part_bf16")]] kernel attention_part_kernel attention_part<kCacheBf16, 8>;
template [[host_name("attention_part_q8_0")]] kernel attention_part_kernel attention_part<kCacheQ8_0, 8>;

typedef decltype(attention_part<kCacheF32, 18>) attention_part_wide_kernel;
template [[host_name("attention_part_wide_f32")]] kernel attention_part_wide_kernel attention_part<kCacheF32, 18>;
template [[host_name("attention_part_wide_f16")]] kernel attention_part_wide_kernel attention_part<kCacheF16, 18>;
template [[host_name("attention_part_wide_bf16")]] kernel attention_part_wide_kernel attention_part<kCacheBf16, 18>;
template [[host_name("attention_part_wide_q8_0")]] kernel attention_part_wide_kernel attention_part<kCacheQ8_0, 18>;

// Grid: x = elements of a head, y = heads, z = queries.
kernel void attention_merge(constant AttentionArgs& args [[buffer(0)]], device const float* partials [[buffer(1)]],
                            device const float* sinks [[buffer(2)]], device const float* gate [[buffer(3)]],
                            device float* out [[buffer(4)]],
                            uint3 position [[thread_position_in_grid]]) {
  uint value_dim = args.cache.value_dim;
  uint i = position.x;
  if (i >= value_dim) return;
  ulong row = ulong(position.z) * args.q_heads + position.y;
  device const float* parts = partials + row * args.splits * (value_dim + 2);
  float top = args.has_sinks != 0 ? sinks[position.y] : -INFINITY;
  for (uint s = 0; s < args.splits; ++s) top = max(top, parts[s * (value_dim + 2) + value_dim]);
  float total = args.has_sinks != 0 ? precise::exp(sinks[position.y] - top) : 0.0f;
  float value = 0.0f;
  for (uint s = 0; s < args.splits; ++s) {
    device const float* part = parts + s * (value_dim + 2);
    float factor = part[value_dim] == -INFINITY ? 0.0f : precise::exp(part[value_dim] - top);
    total += part[value_dim + 1] * factor;
    value += part[i] * factor;
  }
  value /= total;
  if (args.gate != 0) {
    value *= activation_of(args.gate_activation, gate[args.gate == 1 ? row * value_dim + i : row]);
  }
  out[row * value_dim + i] = value;
}
