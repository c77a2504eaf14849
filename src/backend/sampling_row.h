// The draw from one row on the host, in phases that threads can share.
//
// A row is cut into blocks of kSampleBlock tokens. scan() and weigh() work on blocks and leave one number for each;
// draw() and logprobs() then need few of the logits. All sums run over the tokens of a block, then over the blocks, in
// ascending order, so that a result does not depend on who did which blocks.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "backend/op_args.h"
#include "backend/sampling.h"

namespace inferno {

inline constexpr int64_t kSampleBlock = 512;

class RowSampler {
 public:
  // Bytes of `memory`, which the threads that share a row have in common, and of `candidates`, which draw() and
  // logprobs() alone use.
  [[nodiscard]] static int64_t memory_bytes(int64_t vocabulary);
  [[nodiscard]] static int64_t candidate_bytes(int64_t vocabulary);

  // Row `row` of the args. Holds nothing but addresses: every thread makes its own. Both memories are 8-byte aligned.
  RowSampler(const SampleArgs& args, int64_t row, std::byte* memory, std::byte* candidates);

  [[nodiscard]] int64_t blocks() const { return blocks_; }
  // Whether weigh() has anything to do; known before scan().
  [[nodiscard]] bool weighs() const { return weighs_draw() || wants_logprobs(); }

  // The phases in order, the first two for all blocks.
  void scan(int64_t begin, int64_t end) const noexcept;   // blocks [begin, end): edits, mask, the largest logit of each
  void weigh(int64_t begin, int64_t end) const noexcept;  // sums of probabilities
  // Writes the row of every output; one thread.
  void finish() const noexcept;

  // All of it by one thread.
  void run() const noexcept;

 private:
  // A row of logits and one number for each block of it.
  struct Values {
    const float* logits = nullptr;
    float* largest = nullptr;   // [blocks]
    double* weights = nullptr;  // [blocks]
  };
  // exp((logit - best) / temperature) of logits from `least` on, 0 of others.
  struct Weighting {
    float best;
    float temperature = 1;
    float least = -std::numeric_limits<float>::infinity();
    [[nodiscard]] double operator()(float logit) const;
  };

  [[nodiscard]] bool wants_logprobs() const { return row_.top_logprobs >= 0; }
  [[nodiscard]] bool by_rank() const { return settings_.top_k > 0 || settings_.top_p < 1; }
  [[nodiscard]] bool cuts_at_k() const { return settings_.top_k > 0 && settings_.top_k < vocabulary_; }
  [[nodiscard]] bool weighs_draw() const;
  [[nodiscard]] Weighting draw_weighting(float best) const;
  [[nodiscard]] float least_of(float best) const;  // what min-p leaves
  [[nodiscard]] float best_of(const Values& values) const;
  [[nodiscard]] double total_of(const Values& values) const;

  [[nodiscard]] int32_t draw() const;
  [[nodiscard]] int32_t draw_by_id(float best) const;
  [[nodiscard]] int32_t draw_by_rank(float best) const;
  [[nodiscard]] std::span<SampleCandidate> gather(const Values& values, float least) const;
  [[nodiscard]] std::span<SampleCandidate> gather_best(const Values& values, int64_t count) const;
  [[nodiscard]] float least_of_best(const Values& values, int64_t count) const;
  [[nodiscard]] std::span<SampleCandidate> gather_top_p(float best) const;
  void write_logprobs(int32_t drawn, int32_t* ids, float* logprobs) const;

  const SampleArgs& args_;
  const SampleRow& row_;
  const SamplingSettings& settings_;
  int64_t index_;
  int64_t vocabulary_;
  int64_t blocks_;
  Values model_;           // as the model made them
  Values adjusted_;        // after edits and mask; without any, the model's with weights of their own
  float* copy_ = nullptr;  // adjusted_.logits where there are any
  SampleCandidate* candidates_;
};

}  // namespace inferno
