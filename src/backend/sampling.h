// How a token is drawn from a row of logits. One definition for every backend, on the host and on a device.
//
// The order:
//   1. mask: a token whose bit is not set in the row's bitset cannot be drawn;
//   2. bias: added to the logits of the tokens it names; -inf bans a token;
//   3. penalties over the latest tokens of the history, each token once: the repetition penalty divides a positive and
//      multiplies another logit, then count * frequency_penalty + presence_penalty is subtracted;
//   4. temperature 0 takes the largest logit that is left (the first of equals);
//   5. otherwise top-k, then top-p, then min-p on the probabilities that are left, then the temperature, then the draw.
// Candidates are ordered by logit, equal ones by id; where neither top-k nor top-p is set the draw walks over them by
// id. The random number is a hash of (seed, sample_index, position): the same token is drawn again for the same three,
// whatever else ran.
//
// A NaN or -inf is never drawn; what bias or penalties made +inf is drawn at once (the first of them). A row in which
// nothing can be drawn has the result kNothingAllowed, or kNotFinite where the model is to blame: none of its logits is
// a finite number, or the one to be drawn at once is +inf by itself.
//
// Log-probabilities are those of the model: the log-softmax of the row as the model made it, before mask, bias,
// penalties and temperature. A token that the model gives no probability is not listed among the top n.
#pragma once

#include <cstdint>
#include <span>

#include "inferno/sampling.h"  // what a user sets: SamplingSettings, LogitBias

namespace inferno {

// Results that are no token.
inline constexpr int32_t kNothingAllowed = -1;  // mask and bias leave no token that has a probability
inline constexpr int32_t kNotFinite = -2;       // the model's logits are no numbers to draw by

// A setting that is NaN or out of range is a usage Error that names it.
void check_sampling(const SamplingSettings& settings);
// The same for a bias: too many entries, an id outside the vocabulary, NaN, +inf.
void check_logit_bias(std::span<const LogitBias> bias, int64_t vocabulary);

// ---- what an op is given (SampleArgs); plain data that is uploaded as it is

// The settings of a row and its state.
struct SampleRow {
  SamplingSettings settings;
  int32_t sample_index = 0;  // of the sample within its request
  int32_t position = 0;      // of the token to be drawn
  int32_t edits_begin = 0;   // its TokenEdits
  int32_t edits_count = 0;
  int32_t allowed = -1;       // its bitset; -1: all tokens are allowed
  int32_t top_logprobs = -1;  // -1: no log-probabilities; 0: that of the drawn token alone
};
static_assert(sizeof(SampleRow) == 64);
// What bias and penalties do to one token; the ids of a row's edits are all different and in the vocabulary.
struct TokenEdit {
  int32_t id = -1;
  int32_t count = 0;  // in the part of the history that the penalties look back on
  float bias = 0;
};
static_assert(sizeof(TokenEdit) == 12);
inline constexpr int32_t kLogprobColumns = 1 + kMaxTopLogprobs;

// Words of a bitset over the vocabulary.
[[nodiscard]] constexpr int64_t bitset_words(int64_t vocabulary) {
  return (vocabulary + 31) / 32;
}
// The logit after bias and penalties.
[[nodiscard]] inline float edited(float logit, const TokenEdit& edit, const SamplingSettings& settings) {
  logit += edit.bias;
  if (edit.count == 0) return logit;
  logit = logit > 0 ? logit / settings.repeat_penalty : logit * settings.repeat_penalty;
  return logit - (static_cast<float>(edit.count) * settings.frequency_penalty + settings.presence_penalty);
}
// Uniform in [0, 1), 24 bits.
[[nodiscard]] float sample_uniform(uint64_t seed, int32_t sample_index, int32_t position) noexcept;

struct SampleCandidate {
  float logit;
  int32_t id;
};
// Whether the draw is first_largest() of all logits and nothing else is wanted.
[[nodiscard]] bool takes_largest(const SampleRow& row) noexcept;
// The largest of logits[begin, end), NaNs left out; -inf where there is none.
[[nodiscard]] float largest_of(const float* logits, int64_t begin, int64_t end) noexcept;
// The first of the largest of logits[begin, end); a NaN is never it. Where all are NaN or -inf: -inf and any id of
// them.
[[nodiscard]] SampleCandidate first_largest(const float* logits, int64_t begin, int64_t end) noexcept;
// The result of a row in which nothing can be drawn.
[[nodiscard]] int32_t no_token(const float* logits, int64_t vocabulary) noexcept;
// The result of a row of which the largest, after all edits, is drawn.
[[nodiscard]] int32_t largest_token(const SampleCandidate& largest, const float* logits, int64_t vocabulary) noexcept;

}  // namespace inferno
