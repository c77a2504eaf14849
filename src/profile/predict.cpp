#include "profile/predict.h"

#include <algorithm>
#include <chrono>

#include "backend/op_fields.h"
#include "backend/op_image.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

// Largest matrix tried for single tokens: beyond every cache of a desktop, quickly made.
constexpr double kMostTrialBytes = 96e6;
// Rows of the matrix tried for prompts, where arithmetic counts and not memory.
constexpr int64_t kPromptRows = 1024;

double best_run_us(PlacedOp& placed) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLeast = 4;
  constexpr double kLongEnough = 3e4;  // us
  double best = 0;
  double spent = 0;
  for (int i = 0; i < kLeast || (spent < kLongEnough && i < 1000); ++i) {
    const Clock::time_point begin = Clock::now();
    placed.run();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    if (i == 0 || us < best) best = us;
    spent += us;
    if (spent > 20 * kLongEnough && i > 0) break;
  }
  return best;
}

// The matrices of an op and the tokens they meet.
class FindMatrices final : public FieldVisitor {
 public:
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (w != nullptr && w->shape().rank > 1) matrices.push_back(w);
  }
  void tensor(FieldTag tag, std::string_view name, Tensor& t) override {
    if (tag == FieldTag::in && name == "x") tokens = t.rows();
    if (name == "rows" && t.data != nullptr) tokens = t.elements();
    if (tokens == 0) tokens = t.rows();
  }
  std::vector<const Weight*> matrices;
  int64_t tokens = 0;
};

}  // namespace

double StepPredictor::matrix_us(const Weight& w, int64_t tokens) {
  const double bytes = static_cast<double>(w.rows() * row_bytes(w.dtype(), w.cols()));
  double& speed = us_per_byte_[{w.dtype(), w.cols(), tokens}];
  if (speed == 0) {
    const int64_t row = row_bytes(w.dtype(), w.cols());
    const int64_t rows =
        tokens > 1 ? kPromptRows : static_cast<int64_t>(std::min(weight_bytes_, kMostTrialBytes)) / row / 64 * 64;
    LinearShape shape{.tokens = tokens, .k = w.cols(), .n = {std::max<int64_t>(rows, 64)}, .weight = w.dtype()};
    const OpImage image = linear_case(shape, 1);
    WeightCopies weights(backend_);
    PlacedOp placed(image, backend_, weights);
    speed = best_run_us(placed) / static_cast<double>(shape.n[0] * row);
  }
  return bytes * speed;
}

double StepPredictor::other_us(const OpRecord& record, Backend& recorder) {
  FindMatrices find;
  visit_fields(record, find);
  double& us = other_us_[{record.op(), find.tokens}];
  if (us == 0) {
    const OpImage image = OpImage::capture(recorder, record);
    WeightCopies weights(backend_);
    PlacedOp placed(image, backend_, weights);
    us = best_run_us(placed);
  }
  return us;
}

double StepPredictor::op_us(const OpRecord& record, Backend& recorder) {
  FindMatrices find;
  visit_fields(record, find);
  if (find.matrices.empty()) return other_us(record, recorder);
  if (record.op() == OpId::embed) return 0;  // a look-up of a few rows
  double total = 0;
  for (const Weight* w : find.matrices) total += matrix_us(*w, find.tokens);
  return total;
}

}  // namespace inferno
