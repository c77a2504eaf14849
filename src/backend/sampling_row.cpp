#include "backend/sampling_row.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>

#include "base/checked.h"

namespace inferno {
namespace {

bool before(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

int64_t block_count(int64_t vocabulary) {
  return ceil_div(vocabulary, kSampleBlock);
}

// logits[begin, end) of allowed tokens, -inf of the others. Most words of a mask are all ones or all zeros.
void copy_allowed(const float* logits, const uint32_t* allowed, int64_t begin, int64_t end, float* out) {
  constexpr int64_t kBits = 32;
  static_assert(kSampleBlock % kBits == 0);
  for (int64_t first = begin; first < end; first += kBits) {
    const int64_t last = std::min(first + kBits, end);
    const uint32_t word = allowed[first / kBits];
    if (word == 0) {
      std::fill(out + first, out + last, -INFINITY);
    } else if (word == ~uint32_t{0}) {
      std::copy(logits + first, logits + last, out + first);
    } else {
      for (int64_t i = first; i < last; ++i) out[i] = ((word >> (i - first)) & 1) != 0 ? logits[i] : -INFINITY;
    }
  }
}

// The sum of exp(logit - best) over a block, to about 1e-6; NaN and -inf add nothing. Loops without a branch, so that
// the compiler makes vectors of them: std::exp takes five times as long.
double sum_of_exp(const float* logits, int64_t count, float best) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  constexpr float kLeast = -87;        // about the smallest normal number
  constexpr int64_t kLanes = 16;
  float x[kSampleBlock];
  for (int64_t i = 0; i < count; ++i) x[i] = logits[i] - best;
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] > kLeast ? x[i] : kLeast;
  std::fill(x + count, x + kSampleBlock, kLeast);
  float sums[kLanes] = {};
  for (int64_t i = 0; i < kSampleBlock; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      // exp(x) = 2^k exp(r), |r| <= ln 2 / 2; the polynomial is Taylor's to r^6 / 720.
      const float shifted = x[i + j] * 0x1.715476p+0F + kRound;
      const float k = shifted - kRound;
      const float r = (x[i + j] - k * 0x1.62e4p-1F) - k * 0x1.7f7d1cp-20F;
      float p = 1.0F / 720;
      p = p * r + 1.0F / 120;
      p = p * r + 1.0F / 24;
      p = p * r + 1.0F / 6;
      p = p * r + 0.5F;
      p = p * r + 1;
      p = p * r + 1;
      sums[j] += std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
    }
  }
  double total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

// How many of the best candidates, which are in order, it takes until their weights reach `enough`.
template <typename Weighting>
size_t count_until(std::span<const SampleCandidate> ordered, const Weighting& weight, double enough) {
  double sum = 0;
  for (size_t i = 0; i < ordered.size(); ++i) {
    sum += weight(ordered[i].logit);
    if (sum >= enough) return i + 1;
  }
  return ordered.size();
}

// Leaves out candidates that come after the weights of exp(logit - best) have reached `enough` for sure, without
// ordering them: by how many there are at which distance from the best.
std::span<SampleCandidate> narrow(std::span<SampleCandidate> all, float best, double enough) {
  constexpr int kBins = 2048;
  constexpr float kPerUnit = 64;  // bins
  uint32_t counts[kBins] = {};
  const auto bin_of = [&](const SampleCandidate& c) {
    return static_cast<int>(std::min((best - c.logit) * kPerUnit, static_cast<float>(kBins - 1)));
  };
  for (const SampleCandidate& c : all) ++counts[bin_of(c)];
  double sum = 0;
  int last = 0;
  for (; last < kBins - 1; ++last) {
    // No weight of the bin is less; the other half of a bin's width is for rounding.
    sum += counts[last] * std::exp(-(last + 1.5) / kPerUnit);
    if (sum >= enough) break;
  }
  const auto end = std::remove_if(all.begin(), all.end(), [&](const SampleCandidate& c) { return bin_of(c) > last; });
  return all.first(static_cast<size_t>(end - all.begin()));
}

}  // namespace

// ---- memory

int64_t RowSampler::memory_bytes(int64_t vocabulary) {
  const int64_t blocks = block_count(vocabulary);
  return 2 * blocks * static_cast<int64_t>(sizeof(double) + sizeof(float)) +
         round_up(vocabulary * static_cast<int64_t>(sizeof(float)), 8);
}

int64_t RowSampler::candidate_bytes(int64_t vocabulary) {
  return vocabulary * static_cast<int64_t>(sizeof(SampleCandidate));
}

RowSampler::RowSampler(const SampleArgs& args, int64_t row, std::byte* memory, std::byte* candidates)
    : args_(args),
      row_(args.rows.as<SampleRow>()[row]),
      settings_(row_.settings),
      index_(row),
      vocabulary_(args.logits.cols()),
      blocks_(block_count(vocabulary_)),
      candidates_(reinterpret_cast<SampleCandidate*>(candidates)) {
  auto* weights = reinterpret_cast<double*>(memory);
  auto* largest = reinterpret_cast<float*>(weights + 2 * blocks_);
  model_ = {args.logits.f32() + row * vocabulary_, largest, weights};
  adjusted_ = {model_.logits, largest, weights + blocks_};
  if (row_.edits_count == 0 && row_.allowed < 0) return;
  copy_ = largest + 2 * blocks_;
  adjusted_.logits = copy_;
  adjusted_.largest = largest + blocks_;
}

// ---- blocks

void RowSampler::scan(int64_t begin, int64_t end) const noexcept {
  if (begin >= end) return;
  const int64_t first = begin * kSampleBlock;
  const int64_t last = std::min(end * kSampleBlock, vocabulary_);
  if (copy_ != nullptr) {
    if (row_.allowed >= 0) {
      const auto* allowed = args_.allowed.as<uint32_t>() + row_.allowed * args_.allowed.cols();
      copy_allowed(model_.logits, allowed, first, last, copy_);
    } else {
      std::copy(model_.logits + first, model_.logits + last, copy_ + first);
    }
    const auto* edits = args_.edits.as<TokenEdit>() + row_.edits_begin;
    for (const TokenEdit& edit : std::span(edits, static_cast<size_t>(row_.edits_count))) {
      if (edit.id >= first && edit.id < last) copy_[edit.id] = edited(copy_[edit.id], edit, settings_);
    }
  }
  const auto find_largest = [&](const Values& values) {
    for (int64_t b = begin; b < end; ++b) {
      values.largest[b] = largest_of(values.logits, b * kSampleBlock, std::min((b + 1) * kSampleBlock, vocabulary_));
    }
  };
  find_largest(adjusted_);
  if (copy_ != nullptr && wants_logprobs()) find_largest(model_);
}

double RowSampler::Weighting::operator()(float logit) const {
  return logit >= least ? std::exp(static_cast<double>(logit - best) / temperature) : 0;
}

void RowSampler::weigh(int64_t begin, int64_t end) const noexcept {
  const auto for_blocks = [&](const Values& values, float least, auto sum_of) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kSampleBlock;
      const bool counts = values.largest[b] > -INFINITY && values.largest[b] >= least;
      values.weights[b] = counts ? sum_of(values.logits + first, std::min(kSampleBlock, vocabulary_ - first)) : 0;
    }
  };
  if (weighs_draw()) {
    const Weighting weight = draw_weighting(best_of(adjusted_));
    for_blocks(adjusted_, weight.least, [&](const float* logits, int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += weight(logits[i]);
      return sum;
    });
  }
  if (wants_logprobs()) {
    const float best = best_of(model_);
    for_blocks(model_, -INFINITY, [&](const float* logits, int64_t count) {
      // Of infinite logits each has the same share.
      if (best == INFINITY) return static_cast<double>(std::count(logits, logits + count, best));
      return sum_of_exp(logits, count, best);
    });
  }
}

bool RowSampler::weighs_draw() const {
  return settings_.temperature > 0 && (!by_rank() || (settings_.top_p < 1 && !cuts_at_k()));
}

// Top-p looks at probabilities before the temperature.
RowSampler::Weighting RowSampler::draw_weighting(float best) const {
  if (settings_.top_p < 1) return {best};
  return {best, settings_.temperature, least_of(best)};
}

float RowSampler::least_of(float best) const {
  return settings_.min_p > 0 ? std::min(best, best + std::log(settings_.min_p)) : -INFINITY;
}

float RowSampler::best_of(const Values& values) const {
  return *std::max_element(values.largest, values.largest + blocks_);
}

double RowSampler::total_of(const Values& values) const {
  double total = 0;
  for (int64_t b = 0; b < blocks_; ++b) total += values.weights[b];
  return total;
}

// ---- the draw

void RowSampler::finish() const noexcept {
  const int32_t drawn = draw();
  args_.out.as<int32_t>()[index_] = drawn;
  if (args_.logprobs.empty()) return;
  int32_t* ids = args_.top_ids.as<int32_t>() + index_ * kLogprobColumns;
  float* logprobs = args_.logprobs.f32() + index_ * kLogprobColumns;
  std::fill_n(ids, kLogprobColumns, -1);
  std::fill_n(logprobs, kLogprobColumns, 0.0F);
  if (wants_logprobs()) write_logprobs(drawn, ids, logprobs);
}

void RowSampler::run() const noexcept {
  if (args_.logprobs.empty() && takes_largest(row_)) {
    const SampleCandidate best = first_largest(model_.logits, 0, vocabulary_);
    args_.out.as<int32_t>()[index_] = largest_token(best, model_.logits, vocabulary_);
    return;
  }
  scan(0, blocks_);
  if (weighs()) weigh(0, blocks_);
  finish();
}

int32_t RowSampler::draw() const {
  const float best = best_of(adjusted_);
  if (best == -INFINITY) return no_token(model_.logits, vocabulary_);
  if (!(settings_.temperature > 0) || best == INFINITY) {
    const int64_t block = std::find(adjusted_.largest, adjusted_.largest + blocks_, best) - adjusted_.largest;
    const float* first = adjusted_.logits + block * kSampleBlock;
    const float* found = std::find(first, adjusted_.logits + vocabulary_, best);
    return largest_token({best, static_cast<int32_t>(found - adjusted_.logits)}, model_.logits, vocabulary_);
  }
  return by_rank() ? draw_by_rank(best) : draw_by_id(best);
}

// Walks over the weights of the blocks, then over one block.
int32_t RowSampler::draw_by_id(float best) const {
  const Weighting weight = draw_weighting(best);
  double rest = sample_uniform(settings_.seed, row_.sample_index, row_.position) * total_of(adjusted_);
  int64_t last = -1;  // with a weight, for a sum that rounding leaves short
  for (int64_t b = 0; b < blocks_; ++b) {
    if (adjusted_.weights[b] == 0) continue;
    last = b;
    if (rest < adjusted_.weights[b]) break;
    rest -= adjusted_.weights[b];
  }
  int64_t drawn = -1;
  for (int64_t i = last * kSampleBlock; i < std::min((last + 1) * kSampleBlock, vocabulary_); ++i) {
    const double w = weight(adjusted_.logits[i]);
    if (w == 0) continue;
    drawn = i;
    rest -= w;
    if (rest < 0) break;
  }
  return static_cast<int32_t>(drawn);
}

int32_t RowSampler::draw_by_rank(float best) const {
  std::span<SampleCandidate> all;
  if (cuts_at_k()) {
    all = gather_best(adjusted_, settings_.top_k);
    if (settings_.top_p < 1) {
      const Weighting weight{best};
      double total = 0;
      for (const SampleCandidate& c : all) total += weight(c.logit);
      all = all.first(count_until(all, weight, settings_.top_p * total));
    }
  } else {
    all = settings_.top_p < 1 ? gather_top_p(best) : gather_best(adjusted_, vocabulary_);
  }
  if (settings_.min_p > 0) {
    const float least = least_of(best);
    const auto end = std::remove_if(all.begin(), all.end(), [&](const SampleCandidate& c) { return c.logit < least; });
    all = all.first(static_cast<size_t>(end - all.begin()));
  }
  const Weighting weight{best, settings_.temperature};
  double total = 0;
  for (const SampleCandidate& c : all) total += weight(c.logit);
  double rest = sample_uniform(settings_.seed, row_.sample_index, row_.position) * total;
  for (const SampleCandidate& c : all) {
    rest -= weight(c.logit);
    if (rest < 0) return c.id;
  }
  return all.back().id;
}

// ---- candidates

// All from `least` on, by id.
std::span<SampleCandidate> RowSampler::gather(const Values& values, float least) const {
  least = std::max(least, -FLT_MAX);  // nothing without a probability
  size_t count = 0;
  for (int64_t b = 0; b < blocks_; ++b) {
    if (values.largest[b] < least) continue;
    const int64_t last = std::min((b + 1) * kSampleBlock, vocabulary_);
    for (int64_t i = b * kSampleBlock; i < last; ++i) {
      candidates_[count] = {values.logits[i], static_cast<int32_t>(i)};
      count += values.logits[i] >= least ? 1 : 0;
    }
  }
  return {candidates_, count};
}

// The `count` best, ordered.
std::span<SampleCandidate> RowSampler::gather_best(const Values& values, int64_t count) const {
  const std::span<SampleCandidate> all = gather(values, least_of_best(values, count));
  const auto kept = std::min<ptrdiff_t>(count, std::ssize(all));
  // partial_sort is for few of many.
  if (kept * 8 < std::ssize(all)) {
    std::partial_sort(all.begin(), all.begin() + kept, all.end(), before);
  } else {
    std::sort(all.begin(), all.end(), before);
  }
  return all.first(static_cast<size_t>(kept));
}

// A logit that `count` tokens reach, of as few others as can be had quickly: `count` parts of the row have a largest
// logit from it on. The parts are blocks, or the 32nd parts of blocks.
float RowSampler::least_of_best(const Values& values, int64_t count) const {
  constexpr int64_t kParts = 32;
  auto* largest = reinterpret_cast<float*>(candidates_);
  int64_t parts = blocks_;
  if (count <= blocks_) {
    std::copy_n(values.largest, blocks_, largest);
  } else if (const int64_t whole = vocabulary_ / kSampleBlock; count <= whole * kParts) {
    parts = whole * kParts;
    std::fill_n(largest, parts, -INFINITY);
    for (int64_t b = 0; b < whole; ++b) {
      const float* logits = values.logits + b * kSampleBlock;
      float* top = largest + b * kParts;
      for (int64_t i = 0; i < kSampleBlock; i += kParts) {
        for (int64_t j = 0; j < kParts; ++j) top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
      }
    }
  } else {
    return -INFINITY;
  }
  std::nth_element(largest, largest + count - 1, largest + parts, std::greater<>());
  return largest[count - 1];
}

// The smallest set of best candidates that holds top_p of the probability, ordered. Those that could hold no more than
// half of the rest, however many there are, are left out from the start.
std::span<SampleCandidate> RowSampler::gather_top_p(float best) const {
  const double total = total_of(adjusted_);
  const double enough = std::max(settings_.top_p, 0.0F) * total;
  const double least = best + std::log((total - enough) / 2 / static_cast<double>(vocabulary_));
  const std::span<SampleCandidate> all = narrow(gather(adjusted_, static_cast<float>(least)), best, enough);
  std::sort(all.begin(), all.end(), before);
  return all.first(count_until(all, Weighting{best}, enough));
}

void RowSampler::write_logprobs(int32_t drawn, int32_t* ids, float* logprobs) const {
  ids[0] = drawn;
  const float best = best_of(model_);
  if (best == -INFINITY) return;
  const double log_total = std::log(total_of(model_));
  const auto logprob = [&](float logit) {
    const double distance = logit == best ? 0 : static_cast<double>(logit) - best;
    return static_cast<float>(distance - log_total);
  };
  if (drawn >= 0) logprobs[0] = logprob(model_.logits[drawn]);
  if (row_.top_logprobs == 0) return;
  int64_t column = 1;
  for (const SampleCandidate& c : gather_best(model_, std::min(row_.top_logprobs, kMaxTopLogprobs))) {
    const float value = logprob(c.logit);
    if (value == -INFINITY) break;
    ids[column] = c.id;
    logprobs[column++] = value;
  }
}

}  // namespace inferno
