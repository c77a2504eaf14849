#include "verify/whole.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace inferno {
namespace {

// log of the softmax of a row, in double.
std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> out(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = logits[i] - most - std::log(sum);
  return out;
}

size_t likeliest(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

void WholeComparison::add_logits(std::span<const float> tested, std::span<const float> reference) {
  INFERNO_CHECK(tested.size() == reference.size() && tested.size() % vocabulary_ == 0);
  for (size_t begin = 0; begin < tested.size(); begin += vocabulary_) {
    const std::span<const float> row = tested.subspan(begin, vocabulary_);
    const std::span<const float> expected = reference.subspan(begin, vocabulary_);
    const std::vector<double> p = log_softmax(expected);
    const std::vector<double> q = log_softmax(row);
    double divergence = 0;
    for (size_t v = 0; v < vocabulary_; ++v) {
      divergence += std::exp(p[v]) * (p[v] - q[v]);
      const double difference = static_cast<double>(row[v]) - expected[v];
      squares_ += difference * difference;
      largest_ = std::max(largest_, std::fabs(difference));
    }
    divergence_ += divergence;
    most_divergence_ = std::max(most_divergence_, divergence);
    const size_t own = likeliest(expected);
    const size_t other = likeliest(row);
    ++positions_;
    agreeing_ += own == other ? 1 : 0;
    other_margin_ = std::max(other_margin_, static_cast<double>(expected[own]) - expected[other]);
  }
}

void WholeComparison::add_texts(std::span<const int32_t> tested, std::span<const int32_t> reference,
                                std::span<const float> rows) {
  ++texts_;
  const auto parting = static_cast<size_t>(
      std::mismatch(tested.begin(), tested.end(), reference.begin(), reference.end()).first - tested.begin());
  if (parting == tested.size() && parting == reference.size()) {
    ++same_texts_;
    return;
  }
  if (parting >= std::min(tested.size(), reference.size()) || (parting + 1) * vocabulary_ > rows.size()) return;
  const std::span<const float> row = rows.subspan(parting * vocabulary_, vocabulary_);
  const double margin =
      static_cast<double>(row[static_cast<size_t>(reference[parting])]) - row[static_cast<size_t>(tested[parting])];
  parting_margin_ = std::max(parting_margin_.value_or(0), margin);
}

double WholeComparison::noise() const {
  return positions_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(positions_) / static_cast<double>(vocabulary_));
}

double WholeComparison::mean_divergence() const {
  return positions_ == 0 ? 0 : divergence_ / static_cast<double>(positions_);
}

std::string WholeComparison::verdict() const {
  if (!(mean_divergence() <= kMostDivergence)) {
    return fmt::format("the models diverge: the mean is beyond {:.0e}", kMostDivergence);
  }
  if (parting_margin_ && !(*parting_margin_ <= most_margin())) {
    return fmt::format("the texts part where they must not: at a margin of {:.3g}, beyond {:.3g}", *parting_margin_,
                       most_margin());
  }
  return "";
}

std::string WholeComparison::report() const {
  const auto margin_of = [](int64_t same, int64_t all, std::optional<double> margin) {
    return same == all || !margin ? "" : fmt::format(" (margin {:.3g} where not)", *margin);
  };
  return fmt::format(
      "  KL divergence: mean {:.3g}, max {:.3g} over {} positions\n"
      "  logits: differ by {:.3g} (root mean square), at most {:.3g}\n"
      "  likeliest token: the same at {} of {} positions{}\n"
      "  greedy texts: {} of {} the same{}; they may part at a margin of {:.3g}\n",
      mean_divergence(), most_divergence_, positions_, noise(), largest_, agreeing_, positions_,
      margin_of(agreeing_, positions_, other_margin_), same_texts_, texts_,
      margin_of(same_texts_, texts_, parting_margin_), most_margin());
}

}  // namespace inferno
