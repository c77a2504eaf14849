#include "backend/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace inferno {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64's finalizer: every input bit reaches every output bit
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// A NaN is in no range.
void check_range(const char* name, float value, float least, float most) {
  if (!(value >= least && value <= most)) fail_usage("{} {} is not a number from {} to {}", name, value, least, most);
}

}  // namespace

void check_sampling(const SamplingSettings& s) {
  if (!(s.temperature >= 0 && std::isfinite(s.temperature))) {
    fail_usage("temperature {} is not a number from 0 on", s.temperature);
  }
  if (s.top_k < 0) fail_usage("top_k {} is negative; 0 turns it off", s.top_k);
  check_range("top_p", s.top_p, 0, 1);
  check_range("min_p", s.min_p, 0, 1);
  if (!(s.repeat_penalty > 0 && std::isfinite(s.repeat_penalty))) {
    fail_usage("repeat_penalty {} is not a number above 0; 1 turns it off", s.repeat_penalty);
  }
  check_range("presence_penalty", s.presence_penalty, -2, 2);
  check_range("frequency_penalty", s.frequency_penalty, -2, 2);
  if (s.penalty_window < -1) {
    fail_usage("penalty_window {} is not a number of tokens; -1 means all of them", s.penalty_window);
  }
}

void check_logit_bias(std::span<const LogitBias> bias, int64_t vocabulary) {
  if (bias.size() > kMaxLogitBias) fail_usage("logit_bias has {} entries; at most {} fit", bias.size(), kMaxLogitBias);
  for (const LogitBias& entry : bias) {
    if (entry.id < 0 || entry.id >= vocabulary) {
      fail_usage("logit_bias: token id {} is not in the vocabulary (0 to {})", entry.id, vocabulary - 1);
    }
    if (!(entry.bias < INFINITY)) {
      fail_usage("logit_bias: {} for token id {} is neither a number nor -inf", entry.bias, entry.id);
    }
  }
}

float sample_uniform(uint64_t seed, int32_t sample_index, int32_t position) noexcept {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(sample_index)) << 32) | static_cast<uint32_t>(position);
  return static_cast<float>(mix(mix(seed) ^ key) >> 40) * 0x1p-24F;
}

bool takes_largest(const SampleRow& row) noexcept {
  return !(row.settings.temperature > 0) && row.edits_count == 0 && row.allowed < 0 && row.top_logprobs < 0;
}

float largest_of(const float* logits, int64_t begin, int64_t end) noexcept {
  // Lanes that do not depend on each other, so that the compiler makes vectors of them.
  constexpr int64_t kLanes = 32;
  float top[kLanes];
  std::fill_n(top, kLanes, -INFINITY);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
  }
  for (; i < end; ++i) top[0] = logits[i] > top[0] ? logits[i] : top[0];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) top[j] = std::max(top[j], top[j + half]);
  }
  return top[0];
}

// The id is looked for in one block alone: a vocabulary is long.
SampleCandidate first_largest(const float* logits, int64_t begin, int64_t end) noexcept {
  constexpr int64_t kBlock = 4096;
  float best = -INFINITY;
  int64_t best_block = begin;
  for (int64_t block = begin; block < end; block += kBlock) {
    const float largest = largest_of(logits, block, std::min(block + kBlock, end));
    if (largest > best) {
      best = largest;
      best_block = block;
    }
  }
  const float* block_end = logits + std::min(best_block + kBlock, end);
  const float* found = std::find(logits + best_block, block_end, best);
  return {best, static_cast<int32_t>(found == block_end ? begin : found - logits)};
}

int32_t no_token(const float* logits, int64_t vocabulary) noexcept {
  const bool any = std::any_of(logits, logits + vocabulary, [](float x) { return std::isfinite(x); });
  return any ? kNothingAllowed : kNotFinite;
}

int32_t largest_token(const SampleCandidate& largest, const float* logits, int64_t vocabulary) noexcept {
  if (largest.logit == -INFINITY) return no_token(logits, vocabulary);
  return largest.logit == INFINITY && logits[largest.id] == INFINITY ? kNotFinite : largest.id;
}

}  // namespace inferno
