#include "backend/sampling.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace inferno {
namespace {

bool before(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

uint64_t mix(uint64_t x) {  // splitmix64's finalizer: every input bit reaches every output bit
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Divides positive and multiplies negative logits of tokens seen lately, each once however often it occurs.
void penalize(std::span<SampleCandidate> all, std::span<const int32_t> history, float penalty) {
  for (size_t i = 0; i < history.size(); ++i) {
    const int32_t id = history[i];
    if (id < 0 || static_cast<size_t>(id) >= all.size()) continue;
    if (std::find(history.begin(), history.begin() + static_cast<ptrdiff_t>(i), id) !=
        history.begin() + static_cast<ptrdiff_t>(i)) {
      continue;
    }
    float& logit = all[static_cast<size_t>(id)].logit;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Orders the best candidates to the front until their probabilities add up to top_p; returns how many that takes.
// Ordering goes in growing runs, because a few candidates usually hold nearly all the probability.
size_t keep_top_p(std::span<SampleCandidate> all, float top_p) {
  float best = all[0].logit;
  for (const SampleCandidate& c : all) best = std::max(best, c.logit);
  double total = 0;
  for (const SampleCandidate& c : all) total += std::exp(static_cast<double>(c.logit - best));
  double sum = 0;
  size_t ordered = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == ordered) {
      const size_t next = std::min(all.size(), std::max<size_t>(64, ordered * 4));
      std::partial_sort(all.begin() + static_cast<ptrdiff_t>(ordered), all.begin() + static_cast<ptrdiff_t>(next),
                        all.end(), before);
      ordered = next;
    }
    sum += std::exp(static_cast<double>(all[i].logit - best));
    if (sum >= top_p * total) return i + 1;
  }
  return all.size();
}

}  // namespace

bool takes_largest(const SampleParams& params) noexcept {
  return params.temperature <= 0 && (params.repeat_penalty == 1 || params.history_length <= 0);
}

// Lanes that have nothing to do with each other, so that the compiler makes vectors of them, and a search in one block
// alone: a vocabulary is long.
SampleCandidate first_largest(const float* logits, int64_t begin, int64_t end) noexcept {
  constexpr int64_t kLanes = 32;
  constexpr int64_t kBlock = 4096;
  float best = -INFINITY;
  int64_t best_block = begin;
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t block_end = std::min(block + kBlock, end);
    float top[kLanes];
    std::fill_n(top, kLanes, -INFINITY);
    int64_t i = block;
    for (; i + kLanes <= block_end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
    }
    for (; i < block_end; ++i) top[0] = logits[i] > top[0] ? logits[i] : top[0];
    const float largest = *std::max_element(top, top + kLanes);
    if (largest > best) {
      best = largest;
      best_block = block;
    }
  }
  const float* block_end = logits + std::min(best_block + kBlock, end);
  const float* found = std::find(logits + best_block, block_end, best);
  return {best, static_cast<int32_t>(found == block_end ? begin : found - logits)};
}

float sample_uniform(uint64_t seed, int32_t sequence, int32_t position) noexcept {
  const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(sequence)) << 32) | static_cast<uint32_t>(position);
  return static_cast<float>(mix(mix(seed) ^ key) >> 40) * 0x1p-24F;
}

int32_t sample_row(const float* logits, int64_t vocabulary, const SampleParams& params, const int32_t* history,
                   SampleCandidate* scratch) noexcept {
  const auto count = static_cast<size_t>(vocabulary);
  if (takes_largest(params)) return first_largest(logits, 0, vocabulary).id;
  std::span<SampleCandidate> all(scratch, count);
  for (size_t i = 0; i < count; ++i) {
    // A NaN compares with nothing and would break the ordering; it can never be the token to draw.
    all[i] = {std::isnan(logits[i]) ? -INFINITY : logits[i], static_cast<int32_t>(i)};
  }
  if (params.repeat_penalty != 1 && params.history_length > 0) {
    penalize(all, {history, static_cast<size_t>(params.history_length)}, params.repeat_penalty);
  }
  if (params.temperature <= 0) return std::min_element(all.begin(), all.end(), before)->id;

  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < all.size()) {
    std::partial_sort(all.begin(), all.begin() + params.top_k, all.end(), before);
    all = all.first(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1) all = all.first(keep_top_p(all, params.top_p));
  const float best = std::min_element(all.begin(), all.end(), before)->logit;
  if (params.min_p > 0) {
    const float lowest = best + std::log(params.min_p);
    const auto end = std::remove_if(all.begin(), all.end(), [&](const SampleCandidate& c) { return c.logit < lowest; });
    all = all.first(static_cast<size_t>(end - all.begin()));
  }
  // A fixed order, so that the draw does not depend on how the candidates were selected.
  if (params.top_k > 0 || params.top_p < 1) std::sort(all.begin(), all.end(), before);

  double total = 0;
  for (const SampleCandidate& c : all) total += std::exp(static_cast<double>(c.logit - best) / params.temperature);
  double rest = sample_uniform(params.seed, params.sequence, params.position) * total;
  for (const SampleCandidate& c : all) {
    rest -= std::exp(static_cast<double>(c.logit - best) / params.temperature);
    if (rest < 0) return c.id;
  }
  return all.back().id;
}

}  // namespace inferno
