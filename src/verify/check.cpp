#include "verify/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/op_fields.h"
#include "backend/op_print.h"
#include "quant/quant.h"

namespace inferno {
namespace {

constexpr size_t kWorstKept = 5;

// How near a difference is to its limit; any difference is infinitely far beyond a limit of zero.
double badness(const FieldDifference& d, double limit) {
  if (d.nmse == 0) return 0;
  return limit > 0 ? d.nmse / limit : std::numeric_limits<double>::infinity();
}

FieldDifference worst_of(std::vector<FieldDifference> differences, double limit) {
  if (differences.empty()) return {};
  return std::move(*std::max_element(differences.begin(), differences.end(),
                                     [&](const FieldDifference& a, const FieldDifference& b) {
                                       const double x = badness(a, limit);
                                       const double y = badness(b, limit);
                                       return x != y ? x < y : a.max_abs < b.max_abs;
                                     }));
}

std::string where(const OpCheck& check) {
  const std::string layer = check.layer < 0 ? "" : fmt::format(" in layer {}", check.layer);
  return fmt::format("{}{} (step {}, op {})", op_name(check.op), layer, check.step, check.index);
}

}  // namespace

CheckingBackend::CheckingBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference,
                                 const CheckOptions& options)
    : BackendDecorator(std::move(tested)),
      reference_(std::move(reference)),
      weights_(std::make_unique<WeightCopies>(*reference_)),
      options_(options) {}

void CheckingBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  layer_ = -1;
  index_ = 0;
  if (!planning_) ++step_;
  inner().begin_step(mode);
}

bool CheckingBackend::is_due() {
  const int64_t place = seen_ % options_.every;
  if (place == 0) {
    // splitmix64
    uint64_t x = static_cast<uint64_t>(seen_) * 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    due_place_ = static_cast<int64_t>((x ^ (x >> 31)) % static_cast<uint64_t>(options_.every));
  }
  ++seen_;
  return place == due_place_;
}

template <typename Args>
void CheckingBackend::check(const Args& args) {
  constexpr OpId kOp = OpOf<Args>::kId;
  const int64_t index = index_++;
  OpRecord record;
  record.assign(args);
  layer_ = layer_of(record).value_or(layer_);
  const int layer = layer_;
  if (planning_ || !is_due()) {
    OpOf<Args>::call(inner(), args);
    return;
  }
  const OpImage inputs = OpImage::capture(inner(), record);
  OpOf<Args>::call(inner(), args);
  OpImage tested = inputs.clone();
  tested.read_written(inner());
  if (options_.plant == kOp) plant_error(tested);

  // A shadow check must not hold a second copy of the model, so its weights go again.
  if (options_.every > 1) weights_ = std::make_unique<WeightCopies>(*reference_);
  OpImage expected = inputs.clone();
  PlacedOp placed(inputs, *reference_, *weights_);
  placed.run();
  placed.download(expected);

  OpCheck result{.op = kOp, .layer = layer, .step = step_, .index = index, .args = format_args(record)};
  result.limit = nmse_limit(record, options_.numerics);
  result.worst = worst_of(compare_written(expected, tested), result.limit);
  note(result, inputs);
  if (options_.every == 1) expected.replace_written(inner());
}

void CheckingBackend::note(const OpCheck& check, const OpImage& inputs) {
  ++checked_;
  OpCheckTotals& totals = totals_[static_cast<size_t>(check.op)];
  ++totals.calls;
  totals.max_abs = std::max(totals.max_abs, check.worst.max_abs);
  totals.max_ulp = std::max(totals.max_ulp, check.worst.max_ulp);
  totals.max_nmse = std::max(totals.max_nmse, check.worst.nmse);
  totals.limit = std::max(totals.limit, check.limit);
  if (check.diverges()) {
    ++totals.diverging;
    if (!first_) {
      first_ = check;
      first_image_ = inputs.clone();
      first_image_.own_weights();
    }
  }
  if (check.worst.nmse == 0) return;
  const auto worse = [](const OpCheck& a, const OpCheck& b) {
    return badness(a.worst, a.limit) > badness(b.worst, b.limit);
  };
  worst_.insert(std::upper_bound(worst_.begin(), worst_.end(), check, worse), check);
  if (worst_.size() > kWorstKept) worst_.pop_back();
}

std::string CheckingBackend::report() const {
  std::string text = fmt::format("  {:<22}{:>8}{:>14}{:>14}{:>12}{:>12}{:>9}\n", "op", "calls", "max ulp", "max abs",
                                 "max nmse", "limit", "beyond");
  for (int i = 0; i < kOpCount; ++i) {
    const OpCheckTotals& op = totals_[static_cast<size_t>(i)];
    if (op.calls == 0) continue;
    const bool broken = op.max_ulp == std::numeric_limits<uint64_t>::max();
    text +=
        fmt::format("  {:<22}{:>8}{:>14}{:>14.3g}{:>12.2g}{:>12.2g}{:>9}\n", op_name(static_cast<OpId>(i)), op.calls,
                    broken ? "nan" : std::to_string(op.max_ulp), op.max_abs, op.max_nmse, op.limit, op.diverging);
  }
  if (!worst_.empty()) text += "worst:\n";
  for (const OpCheck& check : worst_) {
    text += fmt::format("  {}: {}[{}] is {:.7g} instead of {:.7g}, nmse {:.2g} of {:.2g}\n", where(check),
                        check.worst.field, check.worst.worst, check.worst.worst_tested, check.worst.worst_reference,
                        check.worst.nmse, check.limit);
  }
  if (first_) {
    text += fmt::format("first divergence: {}\n  ({})\n", where(*first_), first_->args);
  }
  return text;
}

void plant_error(OpImage& image) {
  class Plant final : public FieldVisitor {
   public:
    void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
      if (done_ || !is_written(tag) || t.data == nullptr || t.elements() == 0) return;
      done_ = true;
      if (t.dtype == DType::i32) {
        t.as<int32_t>()[0] ^= 1;
      } else {
        falsify(t.f32(), t.elements());
      }
    }
    void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
      if (is_written(tag)) view_ = view;
    }
    void batch(std::string_view /*name*/, StepBatch& b) override {
      if (done_ || view_.k == nullptr) return;
      for (int32_t t = 0; t < b.tokens && !done_; ++t) {
        if (b.slot[t] < 0) continue;
        done_ = true;
        std::vector<float> row(static_cast<size_t>(view_.head_dim));
        void* const stored = static_cast<char*>(view_.k) + view_.row_offset(b.slot[t], 0);
        dequantize_row(view_.dtype, stored, row.data(), view_.head_dim);
        falsify(row.data(), view_.head_dim);
        quantize_row(view_.dtype, row.data(), stored, view_.head_dim);
      }
    }

   private:
    static void falsify(float* values, int64_t count) {
      double squares = 0;
      for (int64_t i = 0; i < count; ++i) {
        if (std::isfinite(values[i])) squares += static_cast<double>(values[i]) * values[i];
      }
      // A fifth of the vector's length in one element: nmse 0.04.
      const float shift = 0.2F * static_cast<float>(std::sqrt(squares)) + 0.01F;
      values[0] = std::isfinite(values[0]) ? values[0] + shift : shift;
    }
    bool done_ = false;
    KvLayerView view_;
  };
  Plant plant;
  visit_fields(image.record(), plant);
}

OpCheck check_image(const OpImage& image, Backend& tested, Backend& reference, Numerics numerics) {
  const auto run = [&](Backend& backend) {
    WeightCopies weights(backend);
    PlacedOp placed(image, backend, weights);
    placed.run();
    OpImage result = image.clone();
    placed.download(result);
    return result;
  };
  OpCheck check{.op = image.record().op(), .args = format_args(image.record())};
  check.layer = layer_of(image.record()).value_or(-1);
  check.limit = nmse_limit(image.record(), numerics);
  check.worst = worst_of(compare_written(run(reference), run(tested)), check.limit);
  return check;
}

#define OP(name, Args)                           \
  void CheckingBackend::name(const Args& args) { \
    check(args);                                 \
  }
#include "backend/op_list.inc"

}  // namespace inferno
