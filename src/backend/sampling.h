// How a token is drawn from logits. One definition for every backend, on the host and on a device.
//
// The order: repetition penalty over the history; temperature 0 takes the largest logit (the first of equals);
// otherwise top-k, then top-p, then min-p on the probabilities that are left, then the temperature, then the draw.
// Candidates are ordered by logit, equal ones by id. The random number is a hash of (seed, sequence, position): the
// same token is drawn again for the same three, whatever else ran.
#pragma once

#include <cstdint>
#include <vector>

namespace inferno {

inline constexpr int kSampleHistory = 64;  // tokens the repetition penalty looks back on

// One row's parameters; plain data that is uploaded as it is.
struct SampleParams {
  float temperature = 0;     // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1;           // 1: off
  float min_p = 0;           // 0: off
  float repeat_penalty = 1;  // 1: off
  int32_t history_length = 0;
  int32_t sequence = 0;
  int32_t position = 0;
  uint64_t seed = 0;
};
static_assert(sizeof(SampleParams) == 40);

// Uniform in [0, 1), 24 bits.
[[nodiscard]] float sample_uniform(uint64_t seed, int32_t sequence, int32_t position) noexcept;

struct SampleCandidate {
  float logit;
  int32_t id;
};

// Whether the draw is first_largest() of all logits.
[[nodiscard]] bool takes_largest(const SampleParams& params) noexcept;
// The first of the largest of logits[begin, end); a NaN is never it. Where all are NaN or -inf: -inf and any id of
// them.
[[nodiscard]] SampleCandidate first_largest(const float* logits, int64_t begin, int64_t end) noexcept;

// The reference draw. `scratch` has room for `vocabulary` candidates.
[[nodiscard]] int32_t sample_row(const float* logits, int64_t vocabulary, const SampleParams& params,
                                 const int32_t* history, SampleCandidate* scratch) noexcept;

}  // namespace inferno
