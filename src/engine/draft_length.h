// How many tokens to guess ahead: by how often guesses were right, what checking one costs, and what may be lost.
//
// Costs are in tokens: the price of a guess is how many tokens the machine could have made in the time that checking it
// takes. The i-th of a draft is worth its price while all i are right more often than that. Every guess is paid from an
// account that gains a little with every token made and much with every right guess: guesses that are never right cost
// kStart + kAllowance per token and no more, whatever else is believed of them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace inferno {

class DraftLength {
 public:
  static constexpr double kStart = 1;
  static constexpr double kAllowance = 0.02;
  static constexpr double kMost = 4;
  // An account this full allows one guess that is not expected to be worth its price: to learn that times have changed.
  static constexpr double kProbe = 0.5;
  // A guess is never for nothing, whatever a cost model says that has seen few steps.
  static constexpr double kLeastPrice = 0.02;

  // `entry`: the price of guessing at all.
  [[nodiscard]] int32_t choose(int32_t most, double price, double entry = 0) const {
    price = std::max(price, kLeastPrice);
    if (price >= 1 || account_ < entry) return 0;
    const auto affordable = static_cast<int32_t>(std::min((account_ - entry) / price, static_cast<double>(most)));
    int32_t length = 0;
    for (double all_right = rate_; length < affordable && all_right > price; all_right *= rate_) ++length;
    return length == 0 && affordable > 0 && account_ >= kProbe ? 1 : length;
  }

  // After a step: so many were guessed for it, and the first `right` of them were.
  void observe(int32_t guessed, int32_t right, double price, double entry = 0) {
    price = std::max(price, kLeastPrice);
    for (int32_t i = 0; i < right; ++i) rate_ += kWeight * (1 - rate_);
    if (right < guessed) rate_ -= kWeight * rate_;
    account_ = std::clamp(account_ + kAllowance + right - guessed * price - entry, 0.0, kMost);
  }

  // How often a guess whose predecessors were right is so itself.
  [[nodiscard]] double rate() const { return rate_; }

 private:
  static constexpr double kWeight = 1.0 / 6;
  double rate_ = 0.7;
  double account_ = kStart;
};

}  // namespace inferno
