// What the rows of one step are sampled with: requests in, SampleArgs out, results back.
//
// Like a StepBatch, all that a step's sampling needs is one block of int32 that is uploaded in one copy, and all its
// results are one block that is downloaded in one. Only what the rows use is part of them: a greedy row is 64 bytes up
// and 4 bytes down. The counts of tokens that penalties need are made here, once, for every backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/op_args.h"
#include "backend/sampling.h"

namespace inferno {

// How one logit row is sampled. The spans are read by HostSampleBatch::set and not kept.
struct SampleRequest {
  SamplingSettings settings;
  int32_t sample_index = 0;           // of the sample within its request: keys the draw, with seed and position
  int32_t position = 0;               // of the token to be drawn
  std::span<const int32_t> history;   // all tokens so far, latest last; penalty_window says how many of them count
  std::span<const uint32_t> allowed;  // bitset of bitset_words(vocabulary) words; empty: all allowed
  std::span<const LogitBias> bias;    // at most kMaxLogitBias; of several for one token the sum
  int32_t top_logprobs = -1;          // -1: no log-probabilities; 0 .. kMaxTopLogprobs
};

struct SampleCapacity {
  int32_t max_rows = 0;
  int64_t vocabulary = 0;
  int32_t max_history = 0;  // latest tokens that penalties can look back on: the context
};

// The host's copy of both blocks. Allocates only when made.
class HostSampleBatch {
 public:
  explicit HostSampleBatch(const SampleCapacity& capacity);

  // Bytes of backend memory for the largest step.
  [[nodiscard]] int64_t request_bytes() const;
  [[nodiscard]] int64_t result_bytes() const;

  // At most max_rows requests. Ids outside the vocabulary are left out.
  void set(std::span<const SampleRequest> requests);
  // What to upload. Its size seldom changes while a history grows, so that a captured step stays the same.
  [[nodiscard]] std::span<const std::byte> block() const { return {block_.get(), static_cast<size_t>(bytes_)}; }
  // The op on logits [rows, vocabulary]: the block is at `requests` in backend memory, the results go to `results`.
  [[nodiscard]] SampleArgs args(const Tensor& logits, void* requests, void* results) const;

  // Where to download the results to.
  [[nodiscard]] std::span<int32_t> results();
  // After the download: the drawn tokens (or kNothingAllowed, kNotFinite).
  [[nodiscard]] std::span<const int32_t> sampled() const { return std::span(results_).first(rows_.size()); }
  // The drawn token, then the top n, best first; nothing for a row that did not ask. Where no token was drawn, the
  // first has the row's result as its id.
  [[nodiscard]] std::span<const TokenLogprob> logprobs(int32_t row);

 private:
  [[nodiscard]] int64_t max_edits() const;
  // The edits of a request after those of the rows before it.
  void add_edits(const SampleRequest& request);
  // The edit of a token in the row that began at `first`, made if there is none yet.
  TokenEdit& edit_of(int32_t id, int64_t first);

  SampleCapacity capacity_;
  std::unique_ptr<std::byte[]> block_;  // SampleRow [rows], TokenEdit [edit_room_], bitsets [masks_, words]
  int64_t bytes_ = 0;
  std::span<SampleRow> rows_;  // in the block
  TokenEdit* edits_ = nullptr;
  int64_t edit_count_ = 0;
  int64_t edit_room_ = 0;  // edit_count_ rounded up
  int64_t masks_ = 0;
  bool wants_logprobs_ = false;
  std::vector<int32_t> edit_at_;  // [vocabulary] the index of a token's edit in the row being added; -1: none

  std::vector<int32_t> results_;        // drawn [rows], ids [rows, kLogprobColumns], log-probabilities [the same]
  std::vector<TokenLogprob> logprobs_;  // [max_rows, kLogprobColumns]
};

}  // namespace inferno
