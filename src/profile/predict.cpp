#include "profile/predict.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "backend/op_fields.h"
#include "backend/op_print.h"
#include "profile/profile.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

// Other weights read between two runs at most: more than the caches hold.
constexpr double kMostOtherBytes = 128e6;
constexpr int kRuns = 9;
constexpr int kLeastRuns = 3;
constexpr double kLongEnoughUs = 2e5;

// What an op's time depends on: its name, shapes, types, and how much cache it reads.
std::string signature(const OpRecord& record) {
  class Lengths final : public FieldVisitor {
   public:
    void batch(std::string_view /*name*/, StepBatch& b) override {
      for (int32_t s = 0; s < b.sequences; ++s) text += fmt::format(" {}", b.kv_len[s]);
    }
    std::string text;
  };
  Lengths lengths;
  visit_fields(record, lengths);
  return fmt::format("{} {}{}", op_name(record.op()), format_args(record), lengths.text);
}

}  // namespace

StepPredictor::StepPredictor(Backend& backend, double weight_bytes) : backend_(backend) {
  constexpr int64_t kWidth = 1024;
  constexpr int64_t kRowBytes = kWidth * 4;
  const double bytes = std::min(weight_bytes, kMostOtherBytes) / static_cast<double>(others_.size());
  const int64_t rows = std::max<int64_t>(static_cast<int64_t>(bytes) / kRowBytes, 1);
  for (Others& others : others_) {
    LinearArgs args{.x = others.image.tensor({1, kWidth})};
    args.w[0] = others.image.weight("others", DType::f32, Shape(rows, kWidth),
                                    std::vector<std::byte>(static_cast<size_t>(rows * kRowBytes)));
    args.out[0] = others.image.tensor({1, rows});
    others.image.add(args);
    others.weights = std::make_unique<WeightCopies>(backend_);
    others.op = std::make_unique<PlacedOp>(others.image, backend_, *others.weights);
  }
}

double StepPredictor::run_once(const PlacedOp& op) {
  backend_.begin_step(StepMode::run);
  call_op(backend_, others_[0].op->records()[0]);
  call_op(backend_, op.records()[0]);
  call_op(backend_, others_[1].op->records()[0]);
  backend_.end_step();
  const StepTimes& times = *backend_.step_times();
  StepView view;
  view_step(times, Phase::decode, view);
  return static_cast<double>(view.ops.at(1).end - view.ops.at(1).begin) / times.ticks_per_us;
}

double StepPredictor::try_out(const OpRecord& record, Backend& recorder) {
  const OpImage image = OpImage::capture(recorder, {&record, 1});
  WeightCopies weights(backend_);
  const PlacedOp op(image, backend_, weights);
  backend_.set_timing(true);
  (void)run_once(op);  // warm-up
  std::vector<double> us;
  const Clock::time_point begin = Clock::now();
  while (us.size() < kRuns) {
    us.push_back(run_once(op));
    const double spent = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    if (us.size() >= kLeastRuns && spent > kLongEnoughUs) break;
  }
  backend_.set_timing(false);
  std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
  return us[us.size() / 2];
}

double StepPredictor::op_us(const OpRecord& record, Backend& recorder) {
  const auto [known, fresh] = known_us_.try_emplace(signature(record));
  if (fresh) known->second = try_out(record, recorder);
  return known->second;
}

}  // namespace inferno
