// Drawing tokens on the device, as backend/sampling.h defines it.
//
// A first kernel reads the logits once: it applies edits and mask and finds each chunk's largest logit, and where
// log-probabilities are wanted also the model's largest and sum of probabilities. A second one, one block per row, ends
// a greedy row there; otherwise it selects (sample_select.cuh).
#include <cfloat>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/sample_select.cuh"

namespace inferno::cuda {
namespace {

constexpr int kChunk = 1024;   // logits per warp of the first kernel
constexpr int kScanWarps = 8;  // of its blocks, at most

// What the first kernel leaves for the second.
struct Scan {
  uint64_t* largest;        // [rows, chunks] key of the largest logit after edits and mask
  uint64_t* model_largest;  // [rows, chunks] of the largest logit of the model
  float* model_sums;        // [rows, chunks] of exp(logit - that logit)
  float* adjusted;          // [rows, vocabulary] logits after edits and mask, of rows that are not greedy
  int chunks;
};

__device__ __forceinline__ uint64_t mix(uint64_t x) {  // as in backend/sampling.cpp
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
__device__ __forceinline__ float uniform(const SampleRow& p) {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(p.sample_index)) << 32) | static_cast<uint32_t>(p.position);
  return static_cast<float>(mix(mix(p.settings.seed) ^ key) >> 40) * 0x1p-24F;
}

// As edited() in backend/sampling.h; nothing may be contracted.
__device__ __forceinline__ float edited_logit(float x, const TokenEdit& edit, const SamplingSettings& s) {
  x = __fadd_rn(x, edit.bias);
  if (edit.count == 0) return x;
  x = x > 0 ? __fdiv_rn(x, s.repeat_penalty) : __fmul_rn(x, s.repeat_penalty);
  const float less = __fadd_rn(__fmul_rn(static_cast<float>(edit.count), s.frequency_penalty), s.presence_penalty);
  return __fsub_rn(x, less);
}

// exp(x - best); 1 for x = best, also where that is infinite.
__device__ __forceinline__ float weight_of(float x, float best) {
  return x == best ? 1.0F : expf(x - best);
}

__device__ __forceinline__ void store_key(uint64_t* to, uint64_t key) {
  __stcg(reinterpret_cast<unsigned long long*>(to), key);
}
__device__ __forceinline__ uint64_t load_key(const uint64_t* from) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(from));
}

// ---- first kernel

// A chunk in the registers of a warp: value i of a lane is logit place(i) of the chunk; -inf after its end.
struct Chunk {
  static constexpr int kValues = kChunk / kWarp;
  int lane;
  int first;  // id of its first logit
  int count;  // logits it has
  bool aligned;
  float v[kValues];

  [[nodiscard]] __device__ __forceinline__ int place(int i) const { return 4 * (lane + kWarp * (i / 4)) + i % 4; }

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      const int at = place(i);
      float4 four = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (aligned && at < count) {
        four = load_fresh4(from + at);
      } else {
        if (at < count) four.x = load_fresh(from + at);
        if (at + 1 < count) four.y = load_fresh(from + at + 1);
        if (at + 2 < count) four.z = load_fresh(from + at + 2);
        if (at + 3 < count) four.w = load_fresh(from + at + 3);
      }
      v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
#pragma unroll
    for (float& x : v) x = isnan(x) ? -INFINITY : x;
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (place(i) < count) __stcg(to + place(i), v[i]);
    }
  }

  // The key of its largest logit; all lanes get it. Places ascend with i, so the first of equals stays.
  [[nodiscard]] __device__ __forceinline__ uint64_t largest() const {
    float best = v[0];
    int where = place(0);
#pragma unroll
    for (int i = 1; i < kValues; ++i) {
      where = v[i] > best ? place(i) : where;
      best = v[i] > best ? v[i] : best;
    }
    return warp_max_key(key_of(best, first + where));
  }

  // Each token has one edit. `values` [kChunk] is memory of this warp.
  __device__ void edit(const TokenEdit* edits, int edit_count, const SamplingSettings& settings, float* values) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[place(i)] = v[i];
    __syncwarp();
    for (int i = lane; i < edit_count; i += kWarp) {
      const int at = edits[i].id - first;
      if (at < 0 || at >= count) continue;
      const float x = edited_logit(values[at], edits[i], settings);
      values[at] = isnan(x) ? -INFINITY : x;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kValues; ++i) v[i] = values[place(i)];
  }

  // What the mask forbids is -inf whatever else is done to it.
  __device__ void mask(const uint32_t* allowed) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int at = place(i);
      if (at < count && (allowed[at / 32] >> (at % 32) & 1) == 0) v[i] = -INFINITY;
    }
  }
};

// A chunk per warp: many loads in flight, and nobody waits for another warp. The last chunks of all rows first: they
// were written last, and logits of many rows are more than L2 holds.
__global__ void __launch_bounds__(kScanWarps* kWarp) scan_kernel(const SampleTask t, const Scan scan) {
  extern __shared__ __align__(16) uint8_t memory[];  // [warps, kChunk] float
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int index = static_cast<int>((gridDim.y - 1 - blockIdx.y) * blockDim.x) / kWarp + warp;
  if (index >= scan.chunks) return;
  const int64_t row = blockIdx.x;
  const int64_t at = row * scan.chunks + index;
  const SampleRow p = t.row[row];
  Chunk chunk{.lane = static_cast<int>(threadIdx.x) % kWarp, .first = index * kChunk};
  chunk.count = min(kChunk, t.vocabulary - chunk.first);
  chunk.aligned = t.vocabulary % 4 == 0;
  wait_for_previous();
  chunk.load(t.logits + row * t.vocabulary + chunk.first);

  if (p.top_logprobs >= 0) {
    const uint64_t top = chunk.largest();
    const float best = logit_of(top);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Chunk::kValues; ++i) {
      sum += chunk.place(i) < chunk.count ? weight_of(chunk.v[i], best) : 0.0F;
    }
    sum = warp_sum(sum);
    if (chunk.lane == 0) {
      store_key(scan.model_largest + at, top);
      __stcg(scan.model_sums + at, sum);
    }
  }
  if (p.edits_count > 0) {
    chunk.edit(t.edits + p.edits_begin, p.edits_count, p.settings, reinterpret_cast<float*>(memory) + warp * kChunk);
  }
  if (p.allowed >= 0) chunk.mask(t.allowed + p.allowed * t.allowed_words + chunk.first / 32);
  if (p.settings.temperature > 0) chunk.store(scan.adjusted + row * t.vocabulary + chunk.first);
  const uint64_t top = chunk.largest();
  if (chunk.lane == 0) store_key(scan.largest + at, top);
}

// ---- second kernel

// The largest of a row's chunks; all threads get it.
__device__ uint64_t largest_of_chunks(Shared& s, const uint64_t* largest, int chunks) {
  if (threadIdx.x < kWarp) {
    uint64_t top = 0;
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kWarp) {
      const uint64_t key = load_key(largest + i);
      top = key > top ? key : top;
    }
    top = warp_max_key(top);
    if (threadIdx.x == 0) s.top = top;
  }
  __syncthreads();
  const uint64_t top = s.top;
  __syncthreads();
  return top;
}

// The result of a row in which nothing can be drawn.
__device__ int32_t no_token_of(const float* logits, int vocabulary) {
  int numbers = 0;
  for (int i = static_cast<int>(threadIdx.x); i < vocabulary; i += kDrawThreads) {
    numbers |= isfinite(load_fresh(logits + i)) ? 1 : 0;
  }
  return __syncthreads_or(numbers) != 0 ? kNothingAllowed : kNotFinite;
}

__device__ int32_t draw(Shared& s, const SampleRow& p, const float* adjusted, int vocabulary, float best,
                        const uint64_t* largest, int chunks) {
  const SamplingSettings& set = p.settings;
  Selector select{s, adjusted, vocabulary, best};
  if (set.top_k > 0 && set.top_k < vocabulary) select.cut_at(largest, chunks, set.top_k);
  if (set.top_p < 1) select.cut = select.find({false, best, 1}, {0, set.top_p}, false);
  if (set.min_p > 0) {
    const uint64_t floor = static_cast<uint64_t>(ordered_bits(fminf(best, best + logf(set.min_p)))) << 32;
    select.cut = floor > select.cut ? floor : select.cut;
  }
  // A finite factor: the best has a distance of 0, and 0 times infinity would be NaN.
  const Weighting weight{false, best, fminf(1.0F / set.temperature, FLT_MAX)};
  const bool by_rank = set.top_k > 0 || set.top_p < 1;
  return by_rank ? id_of(select.find(weight, {0, uniform(p)}, true))
                 : select.find_by_id(weight, share_of(select.sum(weight), uniform(p)));
}

// Log-probabilities of the model, as RowSampler::write_logprobs: the row of both outputs in full.
__device__ void write_logprobs(Shared& s, const SampleTask& t, const Scan& scan, int64_t row, int32_t drawn) {
  const int mine = static_cast<int>(threadIdx.x);
  const int wanted = t.row[row].top_logprobs;
  const float* logits = t.logits + row * t.vocabulary;
  int32_t* ids = t.top_ids + row * kLogprobColumns;
  float* logprobs = t.logprobs + row * kLogprobColumns;
  if (mine < kLogprobColumns) {
    ids[mine] = mine == 0 && wanted >= 0 ? drawn : -1;
    logprobs[mine] = 0;
  }
  if (wanted < 0) return;
  const uint64_t* largest = scan.model_largest + row * scan.chunks;
  const float best = logit_of(largest_of_chunks(s, largest, scan.chunks));
  if (best == -INFINITY) return;
  float sum = 0;
  for (int i = mine; i < scan.chunks; i += kDrawThreads) {
    sum += load_fresh(scan.model_sums + row * scan.chunks + i) * weight_of(logit_of(load_key(largest + i)), best);
  }
  const float log_total = logf(block_sum(sum, reinterpret_cast<float*>(s.scratch)));
  const auto logprob = [&](float x) { return (x == best ? 0.0F : x - best) - log_total; };
  if (mine == 0 && drawn >= 0) logprobs[0] = logprob(load_fresh(logits + drawn));
  const int count = min(min(wanted, kMaxTopLogprobs), t.vocabulary);
  if (count == 0) return;
  __syncthreads();
  Selector select{s, logits, t.vocabulary, best};
  select.cut_at(largest, scan.chunks, count);
  select.gather_cut();
  if (mine >= count) return;
  const uint64_t key = s.bins[mine];
  int rank = 0;
  for (int i = 0; i < count; ++i) rank += s.bins[i] > key ? 1 : 0;
  const float value = logprob(logit_of(key));
  if (value == -INFINITY) return;
  ids[1 + rank] = id_of(key);
  logprobs[1 + rank] = value;
}

__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const SampleTask t, const Scan scan) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  let_next_start();
  const int64_t row = blockIdx.x;
  const SampleRow p = t.row[row];
  wait_for_previous();
  const uint64_t* largest = scan.largest + row * scan.chunks;
  const uint64_t top = largest_of_chunks(s, largest, scan.chunks);
  const float best = logit_of(top);
  int32_t id = id_of(top);
  if (best == -INFINITY) {
    id = no_token_of(t.logits + row * t.vocabulary, t.vocabulary);
  } else if (p.settings.temperature > 0 && best < INFINITY) {
    id = draw(s, p, scan.adjusted + row * t.vocabulary, t.vocabulary, best, largest, scan.chunks);
  } else if (best == INFINITY && load_fresh(t.logits + row * t.vocabulary + id) == INFINITY) {
    id = kNotFinite;
  }
  if (threadIdx.x == 0) t.out[row] = id;
  if (t.logprobs != nullptr) write_logprobs(s, t, scan, row, id);
}

int64_t chunk_count(int64_t vocabulary) {
  return divide_up<int64_t>(vocabulary, kChunk);
}

}  // namespace

int64_t sample_scratch_bytes(int rows, int64_t vocabulary) {
  return rows * (chunk_count(vocabulary) * (8 + 8 + 4) + vocabulary * 4);
}

void launch_sample(const LaunchContext& c, const SampleTask& task) {
  const auto chunks = static_cast<int>(chunk_count(task.vocabulary));
  const int64_t all = int64_t{task.rows} * chunks;
  Scan scan{.chunks = chunks};
  scan.largest = static_cast<uint64_t*>(task.scratch);
  scan.model_largest = scan.largest + all;
  scan.model_sums = reinterpret_cast<float*>(scan.model_largest + all);
  scan.adjusted = scan.model_sums + all;
  // Few rows: small blocks, for all multiprocessors to have some.
  const int warps = task.rows < kScanWarps ? 2 : kScanWarps;
  launch(c,
         {dim3(static_cast<unsigned>(task.rows), static_cast<unsigned>(divide_up(chunks, warps))),
          dim3(static_cast<unsigned>(warps * kWarp)), warps * kChunk * static_cast<int>(sizeof(float))},
         scan_kernel, task, scan);
  launch(c, {dim3(static_cast<unsigned>(task.rows)), dim3(kDrawThreads), static_cast<int>(sizeof(Shared))}, draw_kernel,
         task, scan);
}

}  // namespace inferno::cuda
