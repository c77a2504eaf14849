// How long a step will take: a + b * rows + c * tokens + d * context, fitted to the steps that ran.
//
// The start values come from the model's size and a cautious guess of the machine; a Kalman filter with the four
// coefficients as its state then follows what is measured. It forgets slowly, so that a machine that becomes busy, or a
// cache that outgrows its level, is noticed; a single step that was disturbed counts for little.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace inferno {

struct StepShape {
  int32_t rows = 0;     // logit rows
  int32_t tokens = 0;   // of all sequences
  int64_t context = 0;  // positions that all tokens together attend to

  // With `count` tokens of a sequence from position `first` on.
  [[nodiscard]] StepShape with(int64_t first, int32_t count, int32_t logit_rows) const {
    return {.rows = rows + logit_rows,
            .tokens = tokens + count,
            .context = context + count * first + int64_t{count} * (count + 1) / 2};
  }
};

class StepCost {
 public:
  static constexpr size_t kTerms = 4;
  using Terms = std::array<double, kTerms>;

  // Seconds of a step, of each logit row, token and attended position.
  explicit StepCost(const Terms& start);

  [[nodiscard]] double seconds(const StepShape& step) const;
  void observe(const StepShape& step, double seconds);
  // The most tokens, up to `most`, that a sequence at position `first` may add so that the step stays within `limit`
  // seconds; 0 when not even one fits.
  [[nodiscard]] int32_t tokens_within(double limit, const StepShape& step, int64_t first, int32_t most,
                                      int32_t logit_rows) const;
  // Mean of |measured - predicted| / measured over the latest steps.
  [[nodiscard]] double error() const { return error_; }
  // In the units of the constructor.
  [[nodiscard]] Terms terms() const;

 private:
  Terms start_;  // scaled, as are the next two
  Terms terms_;
  std::array<Terms, kTerms> covariance_{};
  double error_ = 0;
};

// What the latest steps took that only decode.
struct DecodeTime {
  int32_t tokens = 0;  // of the last one; 0: there was none
  double seconds = 0;  // the mean of the last few

  void observe(int32_t step_tokens, double step_seconds) {
    constexpr double kWeight = 0.2;
    seconds = tokens == 0 ? step_seconds : seconds + kWeight * (step_seconds - seconds);
    tokens = step_tokens;
  }
};

}  // namespace inferno
