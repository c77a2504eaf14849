// Drawing tokens, as backend/sampling.h defines it.
//
// sample_scan reads the logits once, a simdgroup for each chunk of a row: it applies edits and mask and finds the
// chunk's largest logit, and where log-probabilities are wanted also the model's largest and sum of probabilities.
// sample_draw, a threadgroup for each row, ends a greedy row there; otherwise it selects (select.h).
#include "select.h"

constant uint kChunk = 1024;
constant uint kLogprobColumns = 21;

inline ulong mix_bits(ulong x) {  // as in backend/sampling.cpp
  x += 0x9e3779b97f4a7c15ul;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ul;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebul;
  return x ^ (x >> 31);
}
inline float uniform_of(device const SampleRowArgs& row) {
  ulong key = (ulong(uint(row.sample_index)) << 32) | ulong(uint(row.position));
  ulong seed = (ulong(row.seed_high) << 32) | ulong(row.seed_low);
  return float(uint(mix_bits(mix_bits(seed) ^ key) >> 40)) * 5.9604644775390625e-8f;
}

// As edited() in backend/sampling.h.
inline float edited_logit(float x, device const TokenEditArgs& edit, device const SampleRowArgs& row) {
  x += edit.bias;
  if (edit.count == 0) return x;
  x = x > 0.0f ? x / row.repeat_penalty : x * row.repeat_penalty;
  return x - (float(edit.count) * row.frequency_penalty + row.presence_penalty);
}

// The key of the largest of values [count], whose first has the id `first`; in all lanes.
inline ulong largest_key(threadgroup const float* values, uint count, uint first, uint lane) {
  uint bits = 0;
  uint id = first;
  for (uint i = lane; i < count; i += 32) {
    uint here = uint(key_of(values[i], 0) >> 32);
    if (here > bits) {
      bits = here;
      id = first + i;
    }
  }
  uint top = simd_max(bits);
  id = simd_min(bits == top ? id : 0xffffffffu);
  return (ulong(top) << 32) | ulong(~id);
}

// Grid: x = chunks of a row, y = rows; a simdgroup each.
kernel void sample_scan(constant SampleArgs& args [[buffer(0)]], device const float* logits [[buffer(1)]],
                        device const SampleRowArgs* rows [[buffer(2)]], device const TokenEditArgs* edits [[buffer(3)]],
                        device const uint* allowed [[buffer(4)]], device ulong* largest [[buffer(5)]],
                        device ulong* model_largest [[buffer(6)]], device float* model_sums [[buffer(7)]],
                        device float* adjusted [[buffer(8)]],
                        uint3 position [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float values[1024];
  uint first = position.x * kChunk;
  uint count = min(kChunk, args.vocabulary - first);
  ulong at = ulong(position.y) * args.chunks + position.x;
  device const SampleRowArgs& row = rows[position.y];
  device const float* from = logits + ulong(position.y) * args.vocabulary + first;
  for (uint i = lane; i < count; i += 32) values[i] = from[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);

  if (row.top_logprobs >= 0) {
    ulong top = largest_key(values, count, first, lane);
    float best = logit_of(top);
    float sum = 0.0f;
    for (uint i = lane; i < count; i += 32) {
      if (!is_nan(values[i])) sum += weight_of(values[i], best);
    }
    sum = simd_sum(sum);
    if (lane == 0) {
      model_largest[at] = top;
      model_sums[at] = sum;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);  // all lanes have read what edits replace
  }
  for (int i = int(lane); i < row.edits_count; i += 32) {  // each token has one
    device const TokenEditArgs& edit = edits[row.edits_begin + i];
    uint place = uint(edit.id) - first;
    if (uint(edit.id) < first || place >= count) continue;
    values[place] = edited_logit(values[place], edit, row);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device float* to = adjusted + ulong(position.y) * args.vocabulary + first;
  for (uint i = lane; i < count; i += 32) {
    bool masked = false;
    if (row.allowed >= 0) {
      uint id = first + i;
      masked = ((allowed[ulong(row.allowed) * args.allowed_words + id / 32] >> (id % 32)) & 1u) == 0;
    }
    float value = masked || is_nan(values[i]) ? -INFINITY : values[i];
    values[i] = value;
    to[i] = value;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong top = largest_key(values, count, first, lane);
  if (lane == 0) largest[at] = top;
}

// The largest of a row's chunks; in all threads.
inline ulong largest_chunk(SelectMemory memory, device const ulong* largest, uint chunks, uint thread_index) {
  if (thread_index == 0) {
    ulong top = 0;
    for (uint i = 0; i < chunks; ++i) top = largest[i] > top ? largest[i] : top;
    memory.found[0] = top;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong top = memory.found[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return top;
}

// The result of a row in which nothing can be drawn: kNothingAllowed, or kNotFinite.
inline int no_token(SelectMemory memory, device const float* logits, uint vocabulary, uint thread_index) {
  if (thread_index == 0) atomic_store_explicit(memory.listed, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  bool any = false;
  for (uint i = thread_index; i < vocabulary; i += kDrawThreads) any = any || is_finite(logits[i]);
  if (any) atomic_store_explicit(memory.listed, 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int result = atomic_load_explicit(memory.listed, memory_order_relaxed) != 0 ? -1 : -2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return result;
}

inline uint draw_token(thread Selection& s, SelectMemory memory, device const SampleRowArgs& row) {
  Weighting weight;
  weight.best = s.best;
  weight.inverse_temperature = 1.0f;
  if (row.top_k > 0 && uint(row.top_k) < s.vocabulary) {
    weight.counts = true;
    s.cut = find_key(s, memory, weight, ulong(row.top_k), -1.0f, false);
  }
  weight.counts = false;
  if (row.top_p < 1.0f) s.cut = find_key(s, memory, weight, 0, row.top_p, false);
  if (row.min_p > 0.0f) {
    ulong least = ulong(ordered_bits(min(s.best, s.best + precise::log(row.min_p)))) << 32;
    s.cut = least > s.cut ? least : s.cut;
  }
  // A finite factor: the best has a distance of 0, and 0 times infinity would be NaN.
  weight.inverse_temperature = min(1.0f / row.temperature, 3.402823466e38f);
  float share = uniform_of(row);
  if (row.top_k > 0 || row.top_p < 1.0f) return id_of(find_key(s, memory, weight, 0, share, true));
  return find_id(s, memory, weight, share);
}

// Log-probabilities of the model: the row of both outputs in full.
inline void write_logprobs(constant SampleArgs& args, SelectMemory memory, device const float* logits,
                           device const ulong* largest, device const float* sums, int wanted, int drawn,
                           uint thread_index, device int* ids, device float* logprobs) {
  if (thread_index < kLogprobColumns) {
    ids[thread_index] = thread_index == 0 && wanted >= 0 ? drawn : -1;
    logprobs[thread_index] = 0.0f;
  }
  if (wanted < 0) return;
  float best = logit_of(largest_chunk(memory, largest, args.chunks, thread_index));
  if (best == -INFINITY) return;
  float total = 0.0f;
  for (uint i = 0; i < args.chunks; ++i) total += sums[i] * weight_of(logit_of(largest[i]), best);
  float log_total = precise::log(total);
  threadgroup_barrier(mem_flags::mem_device);
  if (thread_index == 0 && drawn >= 0) {
    logprobs[0] = (logits[drawn] == best ? 0.0f : logits[drawn] - best) - log_total;
  }
  uint count = min(min(uint(wanted), kLogprobColumns - 1), args.vocabulary);
  if (count == 0) return;
  Selection s;
  s.logits = logits;
  s.vocabulary = args.vocabulary;
  s.best = best;
  s.cut = 0;
  s.in_list = false;
  s.listed = 0;
  s.thread_index = thread_index;
  Weighting weight;
  weight.counts = true;
  weight.best = best;
  weight.inverse_temperature = 1.0f;
  s.cut = find_key(s, memory, weight, ulong(count), -1.0f, false);
  if (!s.in_list) gather(s, memory, 0, kBins - 1);
  if (thread_index >= count || thread_index >= s.listed) return;
  ulong key = memory.list[thread_index];
  float logit = logit_of(key);
  float value = (logit == best ? 0.0f : logit - best) - log_total;
  if (value == -INFINITY) return;
  ids[1 + thread_index] = int(id_of(key));
  logprobs[1 + thread_index] = value;
}

// Grid: x = rows.
kernel void sample_draw(constant SampleArgs& args [[buffer(0)]], device const float* logits [[buffer(1)]],
                        device const SampleRowArgs* rows [[buffer(2)]], device const ulong* largest [[buffer(3)]],
                        device const ulong* model_largest [[buffer(4)]], device const float* model_sums [[buffer(5)]],
                        device const float* adjusted [[buffer(6)]], device int* out [[buffer(7)]],
                        device int* top_ids [[buffer(8)]], device float* logprobs [[buffer(9)]],
                        uint3 position [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup ulong list[1024];
  threadgroup atomic_uint low[1024];
  threadgroup atomic_uint high[1024];
  threadgroup atomic_uint populations[1024];
  threadgroup atomic_uint listed[1];
  threadgroup ulong found[4];
  SelectMemory memory;
  memory.list = list;
  memory.low = low;
  memory.high = high;
  memory.populations = populations;
  memory.listed = listed;
  memory.found = found;
  device const SampleRowArgs& row = rows[position.x];
  device const float* model = logits + ulong(position.x) * args.vocabulary;
  ulong chunk = ulong(position.x) * args.chunks;
  ulong top = largest_chunk(memory, largest + chunk, args.chunks, thread_index);
  float best = logit_of(top);
  int id = int(id_of(top));
  if (best == -INFINITY) {
    id = no_token(memory, model, args.vocabulary, thread_index);
  } else if (row.temperature > 0.0f && best < INFINITY) {
    Selection s;
    s.logits = adjusted + ulong(position.x) * args.vocabulary;
    s.vocabulary = args.vocabulary;
    s.best = best;
    s.cut = 0;
    s.in_list = false;
    s.listed = 0;
    s.thread_index = thread_index;
    id = int(draw_token(s, memory, row));
  } else if (best == INFINITY && model[id] == INFINITY) {
    id = -2;
  }
  if (thread_index == 0) out[position.x] = id;
  if (args.has_logprobs != 0) {
    write_logprobs(args, memory, model, model_largest + chunk, model_sums + chunk, row.top_logprobs, id, thread_index,
                   top_ids + position.x * kLogprobColumns, logprobs + position.x * kLogprobColumns);
  }
}
