// Sampling on the CPU: a worker draws from one row after the other; rows that are fewer than the workers are scanned
// and weighed by all of them.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/sampling_row.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

struct alignas(kCacheLine) SliceLargest {
  SampleCandidate candidate;
};

// For the row of each worker: the first of the largest, from the slices of all workers.
void find_largest(const SampleArgs& a, const Worker& w) noexcept {
  const int64_t rows = a.logits.rows();
  const int64_t vocabulary = a.logits.cols();
  auto* found = reinterpret_cast<SliceLargest*>(w.shared);  // [rows, workers]
  // The slices of the product that made the logits: each worker finds most of them in its own cache.
  const Range columns = w.slice(vocabulary, kCacheLine / sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    const float* logits = a.logits.f32() + r * vocabulary;
    found[r * w.nth + w.ith].candidate = first_largest(logits, columns.begin, columns.end);
  }
  w.barrier();
  if (w.ith >= rows) return;
  const SliceLargest* first = found + w.ith * w.nth;
  const SliceLargest* best = std::max_element(first, first + w.nth, [](const SliceLargest& x, const SliceLargest& y) {
    return x.candidate.logit < y.candidate.logit;
  });
  a.out.as<int32_t>()[w.ith] = largest_token(best->candidate, a.logits.f32() + w.ith * vocabulary, vocabulary);
}

// The memory of a row that workers share, cache lines of its own.
int64_t shared_row_bytes(const SampleArgs& a) {
  return round_up(RowSampler::memory_bytes(a.logits.cols()), kCacheLine);
}

// All workers scan and weigh blocks of every row; then each worker draws from the row of its number.
void sample_together(const SampleArgs& a, const Worker& w) noexcept {
  const int64_t rows = a.logits.rows();
  const auto sampler = [&](int64_t r) { return RowSampler(a, r, w.shared + r * shared_row_bytes(a), w.local); };
  bool weighs = false;
  for (int64_t r = 0; r < rows; ++r) {
    const RowSampler row = sampler(r);
    const Range blocks = w.slice(row.blocks());
    row.scan(blocks.begin, blocks.end);
    weighs = weighs || row.weighs();
  }
  w.barrier();
  if (weighs) {
    for (int64_t r = 0; r < rows; ++r) {
      const RowSampler row = sampler(r);
      const Range blocks = w.slice(row.blocks());
      if (row.weighs()) row.weigh(blocks.begin, blocks.end);
    }
    w.barrier();
  }
  if (w.ith < rows) sampler(w.ith).finish();
}

}  // namespace

OpScratch scratch_of(const SampleArgs& a, const KernelTable& /*kernels*/, int threads) {
  const int64_t together = std::min<int64_t>(a.logits.rows(), threads - 1);
  const int64_t largest = threads * static_cast<int64_t>(sizeof(SliceLargest));
  return {.shared = together * std::max(largest, shared_row_bytes(a)),
          .local = RowSampler::candidate_bytes(a.logits.cols()) + RowSampler::memory_bytes(a.logits.cols())};
}

void run(const SampleArgs& a, const Worker& w) noexcept {
  const int64_t vocabulary = a.logits.cols();
  const auto* settings = a.rows.as<SampleRow>();
  if (a.logits.rows() < w.nth) {
    const bool greedy = a.logprobs.empty() && std::all_of(settings, settings + a.logits.rows(), takes_largest);
    greedy ? find_largest(a, w) : sample_together(a, w);
    return;
  }
  const Range rows = w.slice(a.logits.rows());
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    RowSampler(a, r, w.local + RowSampler::candidate_bytes(vocabulary), w.local).run();
  }
}

}  // namespace inferno::cpu
