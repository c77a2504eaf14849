#include "verify/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "backend/op_fields.h"
#include "backend/op_print.h"

namespace inferno {
namespace {

constexpr size_t kWorstKept = 5;

// How near a difference is to its limit; any difference is infinitely far beyond a limit of zero.
double badness(const FieldDifference& d, double limit) {
  if (d.nmse == 0) return 0;
  return limit > 0 ? d.nmse / limit : std::numeric_limits<double>::infinity();
}

// The index of the difference furthest beyond, or nearest to, the limit of its op.
size_t worst_of(const std::vector<FieldDifference>& differences, const std::vector<double>& limits) {
  const auto found =
      std::max_element(differences.begin(), differences.end(), [&](const FieldDifference& a, const FieldDifference& b) {
        const double x = badness(a, limits[a.op]);
        const double y = badness(b, limits[b.op]);
        return x != y ? x < y : a.max_abs < b.max_abs;
      });
  return static_cast<size_t>(found - differences.begin());
}

std::string where(const OpCheck& check) {
  const std::string layer = check.layer < 0 ? "" : fmt::format(" in layer {}", check.layer);
  return fmt::format("{}{} (step {}, op {})", check.name(), layer, check.step, check.index);
}

}  // namespace

std::string OpCheck::name() const {
  std::string names;
  for (const OpId op : ops) names += fmt::format("{}{}", names.empty() ? "" : " + ", op_name(op));
  return names;
}

std::string OpCheck::blame() const {
  if (ops.size() == 1 || !diverges()) return "";
  if (!blamed) return ", of which none diverges by itself: how they run as one is to blame";
  return fmt::format(", of which {} diverges by itself, too", op_name(*blamed));
}

CheckingBackend::CheckingBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference,
                                 const CheckOptions& options, std::unique_ptr<Backend> exact)
    : BackendDecorator(std::move(tested)),
      reference_(std::move(reference)),
      exact_(std::move(exact)),
      options_(options) {
  if (options_.plant) wrong_.emplace(inner());
}

void CheckingBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  layer_ = -1;
  index_ = 0;
  group_.clear();
  if (!planning_) ++step_;
  inner().begin_step(mode);
}

void CheckingBackend::end_step() {
  INFERNO_CHECK(group_.empty());
  inner().end_step();
}

bool CheckingBackend::has_checked(OpId op) const {
  return std::any_of(totals_.begin(), totals_.end(), [&](const auto& entry) {
    return std::find(entry.first.begin(), entry.first.end(), op) != entry.first.end();
  });
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
void CheckingBackend::collect(const Args& args) {
  ++index_;
  if (!group_.add(args)) return;
  // Ops of default bodies come while the group runs, and are groups of their own.
  OpGroup group = group_;
  group_.clear();
  check(group.ops(), index_ - static_cast<int64_t>(group.ops().size()));
}

void CheckingBackend::check(std::span<const OpRecord> group, int64_t index) {
  layer_ = layer_of(group[0]).value_or(layer_);
  const int layer = layer_;
  // What ranks exchange cannot be computed again on one side.
  const OpId op = group[0].op();
  const bool exchanges = op == OpId::all_reduce || op == OpId::all_gather || op == OpId::pass_on;
  if (planning_ || (exchanges && options_.exchanges) || !is_due()) {
    for (const OpRecord& record : group) call_op(inner(), record);
    return;
  }
  // A shadow check must not hold a second copy of the model, so its weights go again.
  if (options_.every > 1) {
    reference_.clear();
    exact_.clear();
  }
  Outcome outcome = run_both(group, group.size() > 1);
  outcome.check.layer = layer;
  outcome.check.step = step_;
  outcome.check.index = index;
  const bool looks_for_blame = outcome.check.diverges() && !first_;
  if (looks_for_blame) {
    outcome.check.blamed = group.size() == 1 ? group[0].op() : find_blamed(group, outcome.inputs);
  }
  note(outcome.check, outcome.inputs);
  if (options_.every == 1) {
    outcome.expected.replace_written(inner());
  } else if (looks_for_blame) {
    outcome.tested.replace_written(inner());
  }
}

std::vector<Numerics> CheckingBackend::numerics_of(std::span<const OpRecord> group) const {
  std::vector<Numerics> numerics;
  for (const OpRecord& record : group) {
    const bool wide = exact_.backend != nullptr && options_.numerics == Numerics::definition && inner().is_wide(record);
    numerics.push_back(wide ? Numerics::wide : options_.numerics);
  }
  return numerics;
}

CheckingBackend::Outcome CheckingBackend::run_both(std::span<const OpRecord> group, bool plant_arguments) {
  Outcome outcome;
  outcome.inputs = OpImage::capture(inner(), group);
  std::vector<OpRecord> records(group.begin(), group.end());
  for (OpRecord& record : records) {
    if (plant_arguments && options_.plant == record.op()) record = wrong_->of(record);
  }
  for (const OpRecord& record : records) call_op(inner(), record);
  outcome.tested = outcome.inputs.clone();
  outcome.tested.read_written(inner());
  if (!plant_arguments && options_.plant == group[0].op()) plant_error(outcome.tested);

  const std::vector<Numerics> numerics = numerics_of(group);
  const bool wide = std::find(numerics.begin(), numerics.end(), Numerics::wide) != numerics.end();
  Reference& reference = wide ? exact_ : reference_;
  PlacedOp placed(outcome.inputs, *reference.backend, *reference.weights);
  placed.run();
  outcome.expected = outcome.inputs.clone();
  placed.download(outcome.expected);

  for (const OpRecord& record : group) {
    outcome.check.ops.push_back(record.op());
    outcome.check.args += fmt::format("{}{}", outcome.check.args.empty() ? "" : "; ", format_args(record));
  }
  const std::vector<double> limits = nmse_limits(group, numerics);
  std::vector<FieldDifference> differences = compare_written(outcome.inputs, outcome.expected, outcome.tested);
  if (!differences.empty()) {
    outcome.check.worst = std::move(differences[worst_of(differences, limits)]);
    outcome.check.limit = limits[outcome.check.worst.op];
  }
  return outcome;
}

std::optional<OpId> CheckingBackend::find_blamed(std::span<const OpRecord> group, const OpImage& inputs) {
  inputs.replace_written(inner());
  for (OpRecord record : group) {
    make_public(record);
    const Outcome alone = run_both({&record, 1}, true);
    if (alone.check.diverges()) return record.op();
    alone.expected.replace_written(inner());
  }
  return std::nullopt;
}

void CheckingBackend::note(const OpCheck& check, const OpImage& inputs) {
  checked_ += static_cast<int64_t>(check.ops.size());
  last_ = check;
  OpCheckTotals& totals = totals_[check.ops];
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
  std::string text = fmt::format("  {:<38}{:>6}{:>12}{:>12}{:>11}{:>11}{:>8}\n", "op", "calls", "max ulp", "max abs",
                                 "max nmse", "limit", "beyond");
  for (const auto& [ops, total] : totals_) {
    const bool broken = total.max_ulp == std::numeric_limits<uint64_t>::max();
    text += fmt::format("  {:<38}{:>6}{:>12}{:>12.3g}{:>11.2g}{:>11.2g}{:>8}\n", OpCheck{.ops = ops}.name(),
                        total.calls, broken ? "nan" : std::to_string(total.max_ulp), total.max_abs, total.max_nmse,
                        total.limit, total.diverging);
  }
  if (!worst_.empty()) text += "worst:\n";
  for (const OpCheck& check : worst_) {
    text += fmt::format("  {}: {}[{}] is {:.7g} instead of {:.7g}, nmse {:.2g} of {:.2g}\n", where(check),
                        check.worst.field, check.worst.worst, check.worst.worst_tested, check.worst.worst_reference,
                        check.worst.nmse, check.limit);
  }
  if (first_) {
    text += fmt::format("first divergence: {}{}\n  ({})\n", where(*first_), first_->blame(), first_->args);
  }
  return text;
}

OpCheck check_image(const OpImage& image, std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference,
                    Numerics numerics, std::unique_ptr<Backend> exact) {
  CheckingBackend backend(std::move(tested), std::move(reference), {.numerics = numerics}, std::move(exact));
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  placed.run();
  OpCheck check = backend.first_divergence() ? *backend.first_divergence() : *backend.last();
  check.layer = layer_of(image.records()[0]).value_or(-1);
  return check;
}

#define OP(name, Args)                           \
  void CheckingBackend::name(const Args& args) { \
    collect(args);                               \
  }
#include "backend/op_list.inc"

}  // namespace inferno
