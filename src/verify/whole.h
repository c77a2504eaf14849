// Two backends' runs of one model compared as wholes: the logits after every token of the same texts, and the texts
// that each writes by itself, greedily.
//
// Rounding differs between backends, so the logits differ by a noise, and a text may part where two tokens are nearly
// as likely: where the reference prefers its own token by less than kPartingNoise times the noise.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <string>

namespace inferno {

class WholeComparison {
 public:
  explicit WholeComparison(int64_t vocabulary) : vocabulary_(static_cast<size_t>(vocabulary)) {}

  // Logits of both after the same tokens: [rows, vocabulary] each.
  void add_logits(std::span<const float> tested, std::span<const float> reference);
  // What each wrote after the same prompt. Row i of `rows` [*, vocabulary] are the reference's logits for token i of
  // its own text; there may be fewer rows than tokens, and a margin behind them is not known.
  void add_texts(std::span<const int32_t> tested, std::span<const int32_t> reference, std::span<const float> rows);

  // Root of the mean squared difference of the logits.
  [[nodiscard]] double noise() const;
  [[nodiscard]] double mean_divergence() const;
  // Of all texts that part, the largest margin at the first token that differs: the reference's logit of its own token
  // minus that of the other. None: no text parts, or none where rows are known.
  [[nodiscard]] std::optional<double> parting_margin() const { return parting_margin_; }
  [[nodiscard]] double most_margin() const { return kPartingNoise * noise(); }
  // Why the two are not the same model; empty: they are.
  [[nodiscard]] std::string verdict() const;
  // A few lines for people.
  [[nodiscard]] std::string report() const;

  // Last bits that differ flip roundings of 8-bit activations, which on a small model moves logits by tenths: a mean of
  // about 10^-3. A wrong op gives a hundred times that.
  static constexpr double kMostDivergence = 1e-2;
  // A margin is the difference of two logits, each with its noise: four standard deviations leave one in ten thousand.
  static constexpr double kPartingNoise = 4 * std::numbers::sqrt2;

 private:
  size_t vocabulary_;
  double divergence_ = 0;  // Kullback-Leibler, summed over positions
  double most_divergence_ = 0;
  double squares_ = 0;
  double largest_ = 0;
  int64_t positions_ = 0;
  int64_t agreeing_ = 0;     // positions with the same likeliest token
  double other_margin_ = 0;  // the largest margin where not
  int64_t texts_ = 0;
  int64_t same_texts_ = 0;
  std::optional<double> parting_margin_;
};

}  // namespace inferno
