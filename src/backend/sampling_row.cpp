#include "backend/sampling_row.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

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

// Orders the best candidates to the front until their weights reach `enough`; returns how many that takes. Ordering
// goes in growing runs, because a few candidates usually hold nearly all the probability.
template <typename Weighting>
size_t order_until(std::span<SampleCandidate> all, const Weighting& weight, double enough) {
  double sum = 0;
  size_t ordered = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == ordered) {
      const size_t next = std::min(all.size(), std::max<size_t>(64, ordered * 4));
      std::partial_sort(all.begin() + static_cast<ptrdiff_t>(ordered), all.begin() + static_cast<ptrdiff_t>(next),
                        all.end(), before);
      ordered = next;
    }
    sum += weight(all[i].logit);
    if (sum >= enough) return i + 1;
  }
  return all.size();
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

// What has the same logit as the best has its weight, also where that is infinite.
double RowSampler::Weighting::operator()(float logit) const {
  if (!(logit >= least)) return 0;
  return logit == best ? 1 : std::exp(static_cast<double>(logit - best) / temperature);
}

void RowSampler::weigh(int64_t begin, int64_t end) const noexcept {
  const auto weigh_blocks = [&](const Values& values, const Weighting& weight) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t last = std::min((b + 1) * kSampleBlock, vocabulary_);
      double sum = 0;
      if (values.largest[b] > -INFINITY) {
        for (int64_t i = b * kSampleBlock; i < last; ++i) sum += weight(values.logits[i]);
      }
      values.weights[b] = sum;
    }
  };
  if (weighs_draw()) weigh_blocks(adjusted_, draw_weighting(best_of(adjusted_)));
  if (wants_logprobs()) weigh_blocks(model_, {best_of(model_)});
}

bool RowSampler::weighs_draw() const {
  return settings_.temperature > 0 && !cuts_at_k() && (settings_.top_p < 1 || settings_.top_k == 0);
}

// Top-p looks at probabilities before the temperature.
RowSampler::Weighting RowSampler::draw_weighting(float best) const {
  if (settings_.top_p < 1) return {best};
  return {best, settings_.temperature, least_of(best)};
}

float RowSampler::least_of(float best) const {
  return settings_.min_p > 0 ? best + std::log(settings_.min_p) : -INFINITY;
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
  scan(0, blocks_);
  if (weighs()) weigh(0, blocks_);
  finish();
}

int32_t RowSampler::draw() const {
  const float best = best_of(adjusted_);
  if (best == -INFINITY) return no_token(model_.logits, vocabulary_);
  if (settings_.temperature <= 0 || best == INFINITY) {
    const int64_t block = std::find(adjusted_.largest, adjusted_.largest + blocks_, best) - adjusted_.largest;
    const float* first = adjusted_.logits + block * kSampleBlock;
    return static_cast<int32_t>(std::find(first, adjusted_.logits + vocabulary_, best) - adjusted_.logits);
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
      all = all.first(order_until(all, weight, settings_.top_p * total));
    }
  } else {
    all = settings_.top_p < 1 ? gather_top_p(best) : gather(adjusted_, -INFINITY);
  }
  if (settings_.min_p > 0) {
    const float least = least_of(best);
    const auto end = std::remove_if(all.begin(), all.end(), [&](const SampleCandidate& c) { return c.logit < least; });
    all = all.first(static_cast<size_t>(end - all.begin()));
  }
  // A fixed order, so that the draw does not depend on how the candidates were selected.
  std::sort(all.begin(), all.end(), before);

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

// The `count` best, ordered. The largest logits of that many blocks are from some logit on; nothing below it matters.
std::span<SampleCandidate> RowSampler::gather_best(const Values& values, int64_t count) const {
  float least = -INFINITY;
  if (count <= blocks_) {
    auto* largest = reinterpret_cast<float*>(candidates_);
    std::copy_n(values.largest, blocks_, largest);
    std::nth_element(largest, largest + count - 1, largest + blocks_, std::greater<>());
    least = largest[count - 1];
  }
  const std::span<SampleCandidate> all = gather(values, least);
  const auto kept = std::min<ptrdiff_t>(count, std::ssize(all));
  std::partial_sort(all.begin(), all.begin() + kept, all.end(), before);
  return all.first(static_cast<size_t>(kept));
}

// The smallest set of best candidates that holds top_p of the probability, ordered. Candidates that hold less than half
// of the rest even if there were as many of them as tokens are left out from the start.
std::span<SampleCandidate> RowSampler::gather_top_p(float best) const {
  const double total = total_of(adjusted_);
  const double rest = (1.0 - settings_.top_p) * total;
  const double least = best + std::log(rest / 2 / static_cast<double>(vocabulary_));
  const std::span<SampleCandidate> all = gather(adjusted_, static_cast<float>(least));
  return all.first(order_until(all, Weighting{best}, settings_.top_p * total));
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
