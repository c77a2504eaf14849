// Attention of many queries, for prompts: tiles of kQueries queries of one head against kKeys keys, in 8x8 matrices.
//
// A threadgroup of four simdgroups is one head of kQueries neighbouring tokens of the batch. A tile of tokens of several
// sequences is computed once for each. The keys and then the values of a tile go through the same threadgroup memory;
// the softmax is kept up to date from tile to tile (online), and the outputs stay in matrices that the simdgroups share
// by columns. Grid: x = heads, y = ceil(tokens / kQueries).
#include "activations.h"
#include "visible.h"

constant uint kQueries = 8;
constant uint kMostKeys = 32;      // of a tile
constant uint kTileThreads = 128;

// Rows of keys or of values from `key` on as tile [keys][width]; zeros from `end` on, and beyond the row's elements.
template <int kKind>
inline void load_rows(constant AttentionArgs& args, device const uchar* cache, ulong row_bytes,
                      device const int* block_table, int sequence, uint kv_head, int key, uint keys, int end,
                      uint elements, uint width, threadgroup float* tile, uint thread_index) {
  for (uint i = thread_index; i < keys * width; i += kTileThreads) {
    int at = key + int(i / width);
    uint e = i % width;
    float value = 0.0f;
    if (at < end && e < elements) {
      value = cache_value<kKind>(cache + row_of(args, block_table, sequence, uint(at), kv_head) * row_bytes, e);
    }
    tile[i] = value;
  }
}

template <int kKind>
kernel void attention_tiles(constant AttentionArgs& args [[buffer(0)]], device const float* q [[buffer(1)]],
                            device const uchar* k_cache [[buffer(2)]], device const uchar* v_cache [[buffer(3)]],
                            device const int* positions [[buffer(4)]], device const int* sequences [[buffer(5)]],
                            device const int* lengths [[buffer(6)]], device const int* block_table [[buffer(7)]],
                            device const float* sinks [[buffer(8)]], device const float* gate [[buffer(9)]],
                            device float* out [[buffer(10)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float queries[8 * 256];   // [kQueries][key_width]
  threadgroup float rows[4096];         // [keys][key_width or value_width], at the end [kQueries][value_width]
  threadgroup float scores[8 * 32];     // [kQueries][kMostKeys]: products, then weights
  threadgroup float keeps[8 * 8];       // a diagonal: what a query's sums so far are worth now
  threadgroup float maxima[8];
  threadgroup float sums[8];
  uint head = group.x;
  uint first = group.y * kQueries;
  uint last = min(first + kQueries, args.tokens) - 1;
  uint kv_head = head / (args.q_heads / args.cache.kv_heads);
  uint key_width = (args.cache.head_dim + 7) / 8 * 8;
  uint value_width = (args.cache.value_dim + 7) / 8 * 8;
  uint keys = max(key_width, value_width) <= 128 ? 32 : 16;
  int key_step = int(keys);

  for (uint i = thread_index; i < kQueries * key_width; i += kTileThreads) {
    uint query = first + i / key_width;
    uint e = i % key_width;
    float value = 0.0f;
    if (query <= last && e < args.cache.head_dim) {
      value = q[(ulong(query) * args.q_heads + head) * args.cache.head_dim + e] * args.scale;
    }
    queries[i] = value;
  }

  for (uint begin_query = first; begin_query <= last;) {
    // The queries of one sequence; positions grow from token to token.
    int sequence = sequences[begin_query];
    uint end_query = begin_query;
    int lowest = positions[begin_query];
    int highest = lowest;
    while (end_query <= last && sequences[end_query] == sequence) {
      lowest = min(lowest, positions[end_query]);
      highest = max(highest, positions[end_query]);
      ++end_query;
    }
    int end = lengths[sequence];
    int begin = 0;
    if (kCausal) {
      end = min(end, highest + 1);
      if (kHasWindow) begin = max(0, lowest - args.window + 1);
    } else if (kHasWindow) {
      begin = max(0, lowest - args.window / 2);
      end = min(end, highest + args.window / 2 + 1);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index < kQueries) {
      maxima[thread_index] = args.has_sinks != 0 ? sinks[head] : -INFINITY;
      sums[thread_index] = args.has_sinks != 0 ? 1.0f : 0.0f;
    }
    for (uint i = thread_index; i < 64; i += kTileThreads) keeps[i] = 0.0f;
    simdgroup_float8x8 outputs[8];  // column tiles simdgroup, simdgroup + 4, ...
    for (uint i = 0; i < 8; ++i) outputs[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);

    for (int key = begin; key < end; key += key_step) {
      load_rows<kKind>(args, k_cache, args.cache.k_row_bytes, block_table, sequence, kv_head, key, keys, end,
                       args.cache.head_dim, key_width, rows, thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (simdgroup * 8 < keys) {
        simdgroup_float8x8 products = make_filled_simdgroup_matrix<float, 8>(0.0f);
        simdgroup_float8x8 a;
        simdgroup_float8x8 b;
        for (uint e = 0; e < key_width; e += 8) {
          simdgroup_load(a, queries + e, key_width);
          simdgroup_load(b, rows + simdgroup * 8 * key_width + e, key_width, 0, true);
          simdgroup_multiply_accumulate(products, a, b, products);
        }
        simdgroup_store(products, scores + simdgroup * 8, kMostKeys);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);

      // Two queries for each simdgroup, a key for each lane.
      for (uint r = simdgroup * 2; r < simdgroup * 2 + 2; ++r) {
        uint query = first + r;
        bool sees = query >= begin_query && query < end_query && lane < keys && key + int(lane) < end;
        if (sees) sees = is_visible(args, positions[query], key + int(lane));
        float score = -INFINITY;
        if (sees) {
          score = capped(args, scores[r * kMostKeys + lane]);
        }
        float before = maxima[r];
        float top = max(before, simd_max(score));
        float weight = sees ? precise::exp(score - top) : 0.0f;
        float total = simd_sum(weight);
        float keep = top == -INFINITY ? 1.0f : precise::exp(before - top);
        simdgroup_barrier(mem_flags::mem_threadgroup);  // all lanes have read the maximum that lane 0 replaces
        if (lane < keys) scores[r * kMostKeys + lane] = weight;
        if (lane == 0) {
          maxima[r] = top;
          sums[r] = sums[r] * keep + total;
          keeps[r * 9] = keep;
        }
      }
      load_rows<kKind>(args, v_cache, args.cache.v_row_bytes, block_table, sequence, kv_head, key, keys, end,
                       args.cache.value_dim, value_width, rows, thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);

      simdgroup_float8x8 keep_all;
      simdgroup_load(keep_all, keeps, 8);
      for (uint i = 0; i < 8; ++i) {
        uint column = (i * 4 + simdgroup) * 8;
        if (column >= value_width) continue;  // and not break: a loop of constant length keeps matrices in registers
        simdgroup_multiply(outputs[i], keep_all, outputs[i]);
        simdgroup_float8x8 a;
        simdgroup_float8x8 b;
        for (uint k = 0; k < keys; k += 8) {
          simdgroup_load(a, scores + k, kMostKeys);
          simdgroup_load(b, rows + k * value_width + column, value_width);
          simdgroup_multiply_accumulate(outputs[i], a, b, outputs[i]);
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    for (uint i = 0; i < 8; ++i) {
      uint column = (i * 4 + simdgroup) * 8;
      if (column >= value_width) continue;
      simdgroup_store(outputs[i], rows + column, value_width);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < kQueries * value_width; i += kTileThreads) {
      uint query = first + i / value_width;
      uint e = i % value_width;
      if (query < begin_query || query >= end_query || e >= args.cache.value_dim) continue;
      ulong row = ulong(query) * args.q_heads + head;
      float value = rows[i] / sums[i / value_width];
      if (args.gate != 0) {
        value *= activation_of(args.gate_activation, gate[args.gate == 1 ? row * args.cache.value_dim + e : row]);
      }
      out[row * args.cache.value_dim + e] = value;
    }
    begin_query = end_query;
  }
}

typedef decltype(attention_tiles<kCacheF32>) attention_tiles_kernel;
template [[host_name("attention_tiles_f32")]] kernel attention_tiles_kernel attention_tiles<kCacheF32>;
template [[host_name("attention_tiles_f16")]] kernel attention_tiles_kernel attention_tiles<kCacheF16>;
template [[host_name("attention_tiles_bf16")]] kernel attention_tiles_kernel attention_tiles<kCacheBf16>;
template [[host_name("attention_tiles_q8_0")]] kernel attention_tiles_kernel attention_tiles<kCacheQ8_0>;
