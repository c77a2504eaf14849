// Selecting among the candidates of a row by rank or by probability, by one threadgroup.
//
// A candidate is one 64-bit key, its logit in an order-preserving form above its inverted id, so that descending keys
// are the definition's order (backend/sampling.h). The candidates that top-k, top-p and min-p leave are always those
// with key >= some cut. A first cut is by the distance from the best logit, in bins; few candidates that can matter are
// then listed in order in threadgroup memory, among many the key is found digit by digit.
#ifndef INFERNO_METAL_SELECT_H
#define INFERNO_METAL_SELECT_H
#include "common.h"

constant uint kDrawThreads = 512;  // of the threadgroup
constant uint kBinBits = 10;
constant uint kBins = 1024;
constant uint kListed = 1024;  // room in the list
constant uint kBinsPerUnit = 64;

inline bool is_nan(float x) {
  return (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u;
}
inline bool is_finite(float x) {
  return (as_type<uint>(x) & 0x7f800000u) != 0x7f800000u;
}
inline uint ordered_bits(float x) {
  uint bits = as_type<uint>(x + 0.0f);  // -0 and +0 are equal
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
inline float from_ordered(uint bits) {
  return as_type<float>((bits >> 31) != 0 ? bits & 0x7fffffffu : ~bits);
}
inline ulong key_of(float logit, uint id) {
  return (ulong(ordered_bits(is_nan(logit) ? -INFINITY : logit)) << 32) | ulong(~id);
}
inline float logit_of(ulong key) {
  return from_ordered(uint(key >> 32));
}
inline uint id_of(ulong key) {
  return ~uint(key);
}
// exp(x - best); 1 for x = best, also where that is infinite.
inline float weight_of(float x, float best) {
  return x == best ? 1.0f : precise::exp(x - best);
}

// What a candidate counts for: 1, or its probability up to a factor, as an integer. Sums of integers do not depend on
// their order, so the draw repeats; the best candidate weighs 2^38, which leaves room for millions of them.
struct Weighting {
  bool counts;
  float best;
  float inverse_temperature;
};
inline ulong weigh(thread const Weighting& weight, ulong key) {
  if (weight.counts) return 1;
  return ulong(precise::exp((logit_of(key) - weight.best) * weight.inverse_temperature) * 274877906944.0f);
}
// share is a number of 24 bits after the point.
inline ulong share_of(ulong total, float share) {
  ulong part = ulong(share * 16777216.0f);
  return (total >> 24) * part + (((total & 0xffffffu) * part) >> 24);
}

// Threadgroup memory of a selection.
struct SelectMemory {
  threadgroup ulong* list;               // [kListed]
  threadgroup atomic_uint* low;          // [kBins] weights of bins: low halves
  threadgroup atomic_uint* high;         // [kBins]
  threadgroup atomic_uint* populations;  // [kBins] candidates of bins
  threadgroup atomic_uint* listed;       // [1]
  threadgroup ulong* found;              // [4] what one thread found, for all
};

// The same in all threads.
struct Selection {
  device const float* logits;  // [vocabulary]; a NaN counts as -inf
  uint vocabulary;
  float best;
  ulong cut;     // candidates are the keys >= cut
  bool in_list;  // all that matter are in the list, in descending order
  uint listed;
  uint thread_index;
};

// Which bin a key belongs to: by distance from the best, or by a digit of keys that begin with a prefix.
struct BinRule {
  bool by_distance;
  uint shift;
  uint width;
  ulong prefix;
};
inline uint distance_bin(float best, ulong key) {
  float distance = (best - logit_of(key)) * float(kBinsPerUnit);
  return kBins - 1 - uint(min(distance, float(kBins - 1)));
}
inline bool bin_of(thread const BinRule& rule, float best, ulong key, thread uint& bin) {
  if (rule.by_distance) {
    bin = distance_bin(best, key);
    return true;
  }
  if (rule.shift + rule.width < 64 && (key >> (rule.shift + rule.width)) != rule.prefix) return false;
  bin = uint(key >> rule.shift) & ((1u << rule.width) - 1);
  return true;
}

inline ulong bin_weight(SelectMemory memory, uint bin) {
  return (ulong(atomic_load_explicit(&memory.high[bin], memory_order_relaxed)) << 32) |
         ulong(atomic_load_explicit(&memory.low[bin], memory_order_relaxed));
}

// Weights of the candidates by bin, of all of the row.
inline void fill_bins(thread const Selection& s, SelectMemory memory, thread const Weighting& weight,
                      thread const BinRule& rule) {
  for (uint i = s.thread_index; i < kBins; i += kDrawThreads) {
    atomic_store_explicit(&memory.low[i], 0, memory_order_relaxed);
    atomic_store_explicit(&memory.high[i], 0, memory_order_relaxed);
    atomic_store_explicit(&memory.populations[i], 0, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = s.thread_index; i < s.vocabulary; i += kDrawThreads) {
    ulong key = key_of(s.logits[i], i);
    uint bin = 0;
    if (key < s.cut || !bin_of(rule, s.best, key, bin)) continue;
    ulong add = weigh(weight, key);
    uint low = uint(add);
    uint before = atomic_fetch_add_explicit(&memory.low[bin], low, memory_order_relaxed);
    uint high = uint(add >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) atomic_fetch_add_explicit(&memory.high[bin], high, memory_order_relaxed);
    atomic_fetch_add_explicit(&memory.populations[bin], 1, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// A bin of a search: the weight above it, and how many candidates are in it or above.
struct FoundBin {
  uint bin;
  ulong above;
  uint population;
};
inline bool reaches(ulong sum, ulong target, bool strict) {
  return strict ? sum > target : sum >= target;
}

// From the top, the bin at which the running weight reaches the target (passes it if `strict`); the lowest that holds
// anything if none does. share >= 0: the target is that share of all weights, and returned.
inline FoundBin search_bins(thread const Selection& s, SelectMemory memory, uint bins, ulong above, float share,
                            thread ulong& target, bool strict) {
  if (s.thread_index == 0) {
    if (share >= 0.0f) {
      ulong total = 0;
      for (uint i = 0; i < bins; ++i) total += bin_weight(memory, i);
      target = share_of(total, share);
    }
    ulong sum = above;
    ulong before = above;
    uint population = 0;
    uint at = 0;
    for (uint i = bins; i > 0; --i) {
      uint here = atomic_load_explicit(&memory.populations[i - 1], memory_order_relaxed);
      if (here == 0) continue;
      at = i - 1;
      before = sum;
      population += here;
      sum += bin_weight(memory, i - 1);
      if (reaches(sum, target, strict)) break;
    }
    memory.found[0] = at;
    memory.found[1] = before;
    memory.found[2] = population;
    memory.found[3] = target;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  FoundBin found;
  found.bin = uint(memory.found[0]);
  found.above = memory.found[1];
  found.population = uint(memory.found[2]);
  target = memory.found[3];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return found;
}

// The list in descending order: each thread finds the ranks of its keys, which are all different.
inline void sort_list(thread Selection& s, SelectMemory memory) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  s.listed = atomic_load_explicit(memory.listed, memory_order_relaxed);
  ulong keys[2];
  uint ranks[2];
  for (uint k = 0; k < 2; ++k) {
    uint at = s.thread_index + k * kDrawThreads;
    keys[k] = at < s.listed ? memory.list[at] : 0;
    ranks[k] = 0;
    if (at < s.listed) {
      for (uint i = 0; i < s.listed; ++i) ranks[k] += memory.list[i] > keys[k] ? 1 : 0;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 0; k < 2; ++k) {
    if (s.thread_index + k * kDrawThreads < s.listed) memory.list[ranks[k]] = keys[k];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The candidates with a distance bin of at least `least`, and at most `most`, as the list: no more than kListed.
inline void gather(thread Selection& s, SelectMemory memory, uint least, uint most) {
  if (s.thread_index == 0) atomic_store_explicit(memory.listed, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = s.thread_index; i < s.vocabulary; i += kDrawThreads) {
    ulong key = key_of(s.logits[i], i);
    if (key < s.cut) continue;
    uint bin = distance_bin(s.best, key);
    if (bin < least || bin > most) continue;
    memory.list[atomic_fetch_add_explicit(memory.listed, 1, memory_order_relaxed)] = key;
  }
  sort_list(s, memory);
}

// Of the list, whose keys come after the weight `above`: the candidate at which the running weight reaches the target;
// the last one if none does.
inline ulong find_in_list(thread const Selection& s, SelectMemory memory, thread const Weighting& weight, ulong above,
                          ulong target, bool strict) {
  if (s.thread_index == 0) {
    ulong sum = above;
    ulong found = memory.list[0];
    for (uint i = 0; i < s.listed && memory.list[i] >= s.cut; ++i) {
      found = memory.list[i];
      sum += weigh(weight, found);
      if (reaches(sum, target, strict)) break;
    }
    memory.found[0] = found;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong found = memory.found[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return found;
}
// The weight of what is in the list.
inline ulong list_weight(thread const Selection& s, SelectMemory memory, thread const Weighting& weight) {
  if (s.thread_index == 0) {
    ulong sum = 0;
    for (uint i = 0; i < s.listed && memory.list[i] >= s.cut; ++i) sum += weigh(weight, memory.list[i]);
    memory.found[0] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ulong sum = memory.found[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}

// The candidate, in descending order, at which the running weight reaches the target, or with share >= 0 that share of
// all weights.
inline ulong find_key(thread Selection& s, SelectMemory memory, thread const Weighting& weight, ulong target,
                      float share, bool strict) {
  if (s.in_list) {
    if (share >= 0.0f) target = share_of(list_weight(s, memory, weight), share);
    return find_in_list(s, memory, weight, 0, target, strict);
  }
  BinRule rule;
  rule.by_distance = true;
  rule.shift = 0;
  rule.width = kBinBits;
  rule.prefix = 0;
  fill_bins(s, memory, weight, rule);
  FoundBin found = search_bins(s, memory, kBins, 0, share, target, strict);
  if (found.population <= kListed) {  // what comes after that bin can be forgotten
    gather(s, memory, found.bin, kBins - 1);
    s.in_list = true;
    return find_in_list(s, memory, weight, 0, target, strict);
  }
  if (atomic_load_explicit(&memory.populations[found.bin], memory_order_relaxed) <= kListed) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    gather(s, memory, found.bin, found.bin);
    return find_in_list(s, memory, weight, found.above, target, strict);
  }
  rule.by_distance = false;
  ulong above = 0;
  for (uint left = 64; left > 0; left -= rule.width) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    rule.width = min(left, kBinBits);
    rule.shift = left - rule.width;
    fill_bins(s, memory, weight, rule);
    FoundBin digit = search_bins(s, memory, 1u << rule.width, above, -1.0f, target, strict);
    rule.prefix = (rule.prefix << rule.width) | ulong(digit.bin);
    above = digit.above;
  }
  return rule.prefix;
}

// The draw in the order of ids: at which the running weight of candidates passes the share of all of them.
inline uint find_id(thread const Selection& s, SelectMemory memory, thread const Weighting& weight, float share) {
  uint per_thread = (s.vocabulary + kDrawThreads - 1) / kDrawThreads;
  uint begin = min(s.thread_index * per_thread, s.vocabulary);
  uint end = min(begin + per_thread, s.vocabulary);
  ulong own = 0;
  for (uint i = begin; i < end; ++i) {
    ulong key = key_of(s.logits[i], i);
    if (key >= s.cut) own += weigh(weight, key);
  }
  memory.list[s.thread_index] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (s.thread_index == 0) {
    ulong total = 0;
    uint last = 0;  // thread with a weight, for a share that rounding leaves short
    for (uint t = 0; t < kDrawThreads; ++t) {
      total += memory.list[t];
      if (memory.list[t] != 0) last = t;
    }
    ulong target = share_of(total, share);
    ulong before = 0;
    uint chosen = 0;
    for (; chosen < last && before + memory.list[chosen] <= target; ++chosen) before += memory.list[chosen];
    memory.found[0] = chosen;
    memory.found[1] = before;
    memory.found[2] = target;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (memory.found[0] == ulong(s.thread_index)) {
    ulong sum = memory.found[1];
    uint drawn = begin;
    for (uint i = begin; i < end && sum <= memory.found[2]; ++i) {
      ulong key = key_of(s.logits[i], i);
      ulong add = key >= s.cut ? weigh(weight, key) : 0;
      if (add == 0) continue;
      drawn = i;
      sum += add;
    }
    memory.found[3] = drawn;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint drawn = uint(memory.found[3]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return drawn;
}
#endif
