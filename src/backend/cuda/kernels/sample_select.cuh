// Selecting among the candidates of a row by rank or by probability, by one block.
//
// A candidate is one 64-bit key, its logit in an order-preserving form above its inverted id, so that descending keys
// are the definition's order (backend/sampling.h). The candidates that top-k, top-p and min-p leave are always those
// with key >= some cut; each cut, and the draw itself, is found digit by digit from histograms of counts or of
// probability mass, without sorting. As soon as few candidates can matter they are gathered into shared memory.
#pragma once

#include "backend/cuda/kernels/device.cuh"

namespace inferno::cuda {

inline constexpr int kDrawThreads = 1024;  // of the block
inline constexpr int kBits = 11;
inline constexpr int kBins = 1 << kBits;
inline constexpr int kListCapacity = 4096;

__device__ __forceinline__ uint32_t ordered_bits(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);  // -0 and +0 are equal
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_ordered(uint32_t bits) {
  return __uint_as_float((bits >> 31) != 0 ? bits & 0x7fffffffU : ~bits);
}
__device__ __forceinline__ uint64_t key_of(float logit, int32_t id) {
  return static_cast<uint64_t>(ordered_bits(logit)) << 32 | static_cast<uint32_t>(~id);
}
__device__ __forceinline__ float logit_of(uint64_t key) {
  return from_ordered(static_cast<uint32_t>(key >> 32));
}
__device__ __forceinline__ int32_t id_of(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

__device__ __forceinline__ uint64_t warp_max_key(uint64_t key) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kFullMask, key, step);
    key = other > key ? other : key;
  }
  return key;
}

// What a candidate counts for: 1, or its probability up to a factor, as an integer. Sums of integers do not depend on
// their order, so the draw repeats; the best candidate weighs 2^38, which leaves room for millions of them.
struct Weighting {
  bool counts;
  float best;
  float inverse_temperature;
  __device__ __forceinline__ uint64_t operator()(uint64_t key) const {
    if (counts) return 1;
    return static_cast<uint64_t>(expf((logit_of(key) - best) * inverse_temperature) * 0x1p38F);
  }
};

// A running weight to reach: given, or (share >= 0) as a share of the weight of all candidates.
struct Target {
  uint64_t weight;
  float share;
};
__device__ __forceinline__ uint64_t share_of(uint64_t total, float share) {
  return static_cast<uint64_t>(static_cast<double>(total) * static_cast<double>(share));
}

struct Shared {
  uint64_t list[kListCapacity];
  uint64_t bins[kBins];
  uint32_t populations[kBins];
  uint64_t scratch[kDrawThreads / kWarp];
  uint64_t top;
  uint64_t least;
  int listed;
  int listed_last;
  // The bin a search ended in, the weight above it, and how many candidates are in it or above.
  int bin;
  uint64_t above;
  uint32_t population;
};

struct Selector {
  Shared& s;
  const float* logits;  // [vocabulary]; a NaN counts as -inf
  int vocabulary;
  float best;
  uint64_t cut = 0;  // candidates are the keys >= cut
  bool in_list = false;
  bool sorted = false;  // the list, descending; it has no more keys than the block has threads

  __device__ __forceinline__ float logit_at(int i) const {
    const float x = load_fresh(logits + i);
    return isnan(x) ? -INFINITY : x;
  }

  template <typename F>
  __device__ __forceinline__ void each(F f) const {
    if (in_list) {
      for (int i = static_cast<int>(threadIdx.x); i < s.listed; i += kDrawThreads) {
        if (s.list[i] >= cut) f(s.list[i]);
      }
      return;
    }
    constexpr int kAtOnce = 8;  // loads under way
    for (int begin = static_cast<int>(threadIdx.x); begin < vocabulary; begin += kDrawThreads * kAtOnce) {
      float values[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kDrawThreads;
        values[j] = i < vocabulary ? logit_at(i) : 0.0F;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kDrawThreads;
        const uint64_t key = key_of(values[j], i);
        if (i < vocabulary && key >= cut) f(key);
      }
    }
  }

  __device__ uint64_t sum(const Weighting& weight) {
    uint64_t mine = 0;
    each([&](uint64_t key) { mine += weight(key); });
    return block_sum(mine);
  }

  __device__ uint64_t block_sum(uint64_t v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) s.scratch[threadIdx.x / kWarp] = v;
    __syncthreads();
    uint64_t total = 0;
    for (int w = 0; w < kDrawThreads / kWarp; ++w) total += s.scratch[w];
    __syncthreads();
    return total;
  }

  // Weights of the candidates by bin(key), candidates with a bin below zero left out.
  template <typename Bin>
  __device__ void fill_bins(const Weighting& weight, Bin bin_of) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) s.bins[i] = 0, s.populations[i] = 0;
    __syncthreads();
    // Nearly all candidates of most rows fall into the lowest bin: each thread adds up its own first.
    uint32_t lowest = 0;
    uint64_t lowest_weight = 0;
    each([&](uint64_t key) {
      const int bin = bin_of(key);
      if (bin < 0) return;
      if (bin == 0) {
        ++lowest;
        lowest_weight += weight(key);
        return;
      }
      atomicAdd(&s.populations[bin], 1U);
      if (!weight.counts) add_to_bin(bin, weight(key));
    });
    if (lowest != 0) {
      atomicAdd(&s.populations[0], lowest);
      atomicAdd(reinterpret_cast<unsigned long long*>(&s.bins[0]), lowest_weight);
    }
    __syncthreads();
    if (weight.counts) {
      for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) s.bins[i] = s.populations[i];
      __syncthreads();
    }
  }

  // Shared memory adds 32 bits at a time: the upper half takes the carry.
  __device__ __forceinline__ void add_to_bin(int bin, uint64_t weight) {
    auto* halves = reinterpret_cast<uint32_t*>(&s.bins[bin]);
    const auto low = static_cast<uint32_t>(weight);
    const uint32_t before = atomicAdd(halves, low);
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + (before + low < before ? 1U : 0U);
    if (high != 0) atomicAdd(halves + 1, high);
  }

  // A first cut by the distance from the best logit, in bins of 1/128: what cannot matter stays out of the list.
  // Few candidates in the bin of the target or above it: they become the list for good. Otherwise those in the bin
  // alone, if they are few enough: `key` is then the answer.
  __device__ bool narrow_down(const Weighting& weight, Target& target, bool strict, uint64_t& key) {
    const auto bin_of = [&](uint64_t candidate) {
      const float distance = (best - logit_of(candidate)) * 128.0F;
      return kBins - 1 - static_cast<int>(fminf(distance, static_cast<float>(kBins - 1)));
    };
    fill_bins(weight, bin_of);
    if (target.share >= 0) {
      uint64_t mine = 0;
      for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) mine += s.bins[i];
      target = {share_of(block_sum(mine), target.share), -1};
    }
    search(0, target.weight, strict, kBins);
    __syncthreads();
    const int bin = s.bin;
    const uint64_t above = s.above;
    const bool all_fit = s.population <= kListCapacity;
    const bool bin_fits = s.populations[bin] <= kListCapacity;
    if (threadIdx.x == 0) s.listed = 0;
    __syncthreads();
    if (!all_fit && !bin_fits) return false;
    each([&](uint64_t candidate) {
      const int in = bin_of(candidate);
      if (in == bin || (all_fit && in > bin)) s.list[atomicAdd(&s.listed, 1)] = candidate;
    });
    __syncthreads();
    in_list = true;
    if (s.listed <= kDrawThreads) sort();
    if (all_fit) return false;
    key = find_in(weight, target.weight, above, strict);
    in_list = sorted = false;
    return true;
  }

  // Leaves the `count` best candidates, of at least `count`; `largest` are the largest keys of chunks.
  __device__ void cut_at(const uint64_t* largest, int chunks, int count) {
    if (count <= chunks && chunks <= kListCapacity) start_from(largest, chunks, count);
    cut = find({true, best, 1}, {static_cast<uint64_t>(count), -1}, false);
  }

  // The candidates, no more than kBins of them, in any order in s.bins.
  __device__ void gather_cut() {
    if (threadIdx.x == 0) s.bin = 0;
    __syncthreads();
    each([&](uint64_t key) { s.bins[atomicAdd(&s.bin, 1)] = key; });
    __syncthreads();
  }

  // For the `count` best candidates: `count` chunks have a largest key of at least `least`, so nothing below it
  // matters.
  __device__ void start_from(const uint64_t* largest, int chunks, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kDrawThreads) {
      s.list[i] = __ldcg(reinterpret_cast<const unsigned long long*>(largest) + i);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kDrawThreads) {
      int rank = 0;
      for (int j = 0; j < chunks; ++j) rank += s.list[j] > s.list[i] ? 1 : 0;
      if (rank == count - 1) s.least = s.list[i];
    }
    if (threadIdx.x == 0) s.listed = 0;
    __syncthreads();
    cut = s.least;
    each([&](uint64_t key) {
      const int at = atomicAdd(&s.listed, 1);
      if (at < kListCapacity) s.list[at] = key;
    });
    __syncthreads();
    in_list = s.listed <= kListCapacity;
    if (s.listed <= kDrawThreads) sort();
  }

  // Each thread finds its key's rank: keys are all different.
  __device__ void sort() {
    const int mine = static_cast<int>(threadIdx.x);
    const uint64_t key = mine < s.listed ? s.list[mine] : 0;
    int rank = 0;
    for (int i = 0; i < s.listed; ++i) rank += s.list[i] > key ? 1 : 0;
    __syncthreads();
    if (mine < s.listed) s.list[rank] = key;
    __syncthreads();
    sorted = true;
  }

  // The same as find_in() on a sorted list: running sums over the threads.
  __device__ uint64_t find_sorted(const Weighting& weight, uint64_t target, uint64_t above, bool strict) {
    const int mine = static_cast<int>(threadIdx.x);
    const int lane = mine % kWarp;
    const bool candidate = mine < s.listed && s.list[mine] >= cut;
    uint64_t sum = candidate ? weight(s.list[mine]) : 0;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const uint64_t other = __shfl_up_sync(kFullMask, sum, step);
      if (lane >= step) sum += other;
    }
    if (mine == 0) s.bin = kDrawThreads, s.listed_last = 0;
    __syncthreads();
    if (lane == kWarp - 1) s.scratch[mine / kWarp] = sum;
    __syncthreads();
    for (int w = 0; w < mine / kWarp; ++w) sum += s.scratch[w];
    sum += above;
    if (candidate) atomicMax(&s.listed_last, mine);
    if (candidate && (strict ? sum > target : sum >= target)) atomicMin(&s.bin, mine);
    __syncthreads();
    const uint64_t found = s.list[s.bin < kDrawThreads ? s.bin : s.listed_last];
    __syncthreads();
    return found;
  }

  // The candidate, in descending order, at which the running weight reaches the target (strictly passes it if
  // `strict`); the last one if none does.
  __device__ uint64_t find(const Weighting& weight, Target target, bool strict) {
    uint64_t key = 0;
    if (!in_list && narrow_down(weight, target, strict, key)) return key;
    if (target.share >= 0) target = {share_of(sum(weight), target.share), -1};
    return find_in(weight, target.weight, 0, strict);
  }

  // The same with `above` as the weight of candidates that come before all that each() visits.
  __device__ uint64_t find_in(const Weighting& weight, uint64_t target, uint64_t above, bool strict) {
    if (sorted) return find_sorted(weight, target, above, strict);
    uint64_t prefix = 0;
    // Digits of the key from the top: 11 + 11 + 10 bits of the logit, then the id's 11 + 11 + 10.
    for (int digit = 0; digit < 6; ++digit) {
      const int width = digit % 3 == 2 ? 10 : kBits;
      const int shift = 64 - (digit / 3 * 32 + digit % 3 * kBits) - width;
      fill_bins(weight, [&](uint64_t key) {
        if (digit != 0 && key >> (shift + width) != prefix) return -1;
        return static_cast<int>(key >> shift) & ((1 << width) - 1);
      });
      search(above, target, strict, 1 << width);
      __syncthreads();
      prefix = prefix << width | static_cast<uint64_t>(s.bin);
      above = s.above;
      __syncthreads();
    }
    return prefix;
  }

  // One warp walks the bins from the top: 64 per lane, then the lane whose share holds the target.
  __device__ void search(uint64_t above, uint64_t target, bool strict, int bins) {
    if (threadIdx.x >= kWarp) return;
    const int lane = static_cast<int>(threadIdx.x);
    const int share = bins / kWarp;
    uint64_t mine = 0;
    uint32_t population = 0;
    int lowest = -1;  // lowest bin of the share that holds anything
    for (int i = 0; i < share; ++i) {
      const int bin = bins - 1 - lane * share - i;
      mine += s.bins[bin];
      population += s.populations[bin];
      if (s.populations[bin] != 0) lowest = bin;
    }
    uint64_t before = above;
    uint32_t population_before = 0;
    for (int w = 0; w < kWarp; ++w) {
      const uint64_t other = __shfl_sync(kFullMask, mine, w);
      const uint32_t others = __shfl_sync(kFullMask, population, w);
      if (w < lane) before += other, population_before += others;
    }
    const bool reaches = population != 0 && (strict ? before + mine > target : before + mine >= target);
    const unsigned reaching = __ballot_sync(kFullMask, reaches);
    const unsigned holding = __ballot_sync(kFullMask, population != 0);
    // Rounding may leave the target just out of reach: then the last candidate is the one.
    const int chosen = reaching != 0 ? __ffs(static_cast<int>(reaching)) - 1 : 31 - __clz(static_cast<int>(holding));
    if (lane != chosen) return;
    for (int i = 0; i < share; ++i) {
      const int bin = bins - 1 - lane * share - i;
      population_before += s.populations[bin];
      const uint64_t with = before + s.bins[bin];
      const bool enough = strict ? with > target : with >= target;
      if ((s.populations[bin] != 0 && enough && reaching != 0) || bin == lowest) {
        s.bin = bin;
        s.above = before;
        s.population = population_before;
        return;
      }
      before = with;
    }
  }

  // The draw in the order of ids.
  __device__ int32_t find_by_id(const Weighting& weight, uint64_t target) {
    const int share = (vocabulary + kDrawThreads - 1) / kDrawThreads;
    const int begin = static_cast<int>(threadIdx.x) * share;
    const int end = min(begin + share, vocabulary);
    uint64_t mine = 0;
    int last = -1;
    for (int i = begin; i < end; ++i) {
      const uint64_t key = key_of(logit_at(i), i);
      if (key >= cut) mine += weight(key), last = i;
    }
    // Running sums over the threads: the bins serve as memory.
    __syncthreads();
    s.bins[threadIdx.x] = mine;
    if (threadIdx.x == 0) s.listed = -1, s.bin = kDrawThreads;
    __syncthreads();
    uint64_t before = 0;
    for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) before += s.bins[i];
    if (last >= 0 && before + mine > target) atomicMin(&s.bin, static_cast<int>(threadIdx.x));
    atomicMax(&s.listed, last);
    __syncthreads();
    if (s.bin == static_cast<int>(threadIdx.x)) {
      int chosen = last;
      for (int i = begin; i < end; ++i) {
        const uint64_t key = key_of(logit_at(i), i);
        if (key < cut) continue;
        before += weight(key);
        if (before > target) {
          chosen = i;
          break;
        }
      }
      s.listed = chosen;
    }
    __syncthreads();
    return s.listed;
  }
};

}  // namespace inferno::cuda
