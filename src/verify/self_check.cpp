#include "verify/self_check.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

// What is wrong with the device's result, or "".
std::string wrong_in(const OpCase& c, Backend& device, Backend& reference) {
  try {
    const OpImage tested = run_on(device, c.image);
    const double limit = nmse_limit(c.image.record(), Numerics::definition);
    for (const FieldDifference& d : compare_written(c.image, run_on(reference, c.image), tested)) {
      if (!d.beyond(limit)) continue;
      return fmt::format("{} ({}): {} is {:g} where it should be {:g}", op_name(c.image.record().op()), c.name, d.field,
                         d.worst_tested, d.worst_reference);
    }
    return "";
  } catch (const Error& error) {
    return fmt::format("{} ({}): {}", op_name(c.image.record().op()), c.name, error.what());
  }
}

std::vector<OpId> fused_ops() {
  std::vector<OpId> ops;
  for (int i = 0; i < kOpCount; ++i) {
    if (is_fused(static_cast<OpId>(i))) ops.push_back(static_cast<OpId>(i));
  }
  return ops;
}

}  // namespace

SelfCheck self_check(Backend& device, Backend& reference, std::span<const OpId> ops) {
  const std::vector<OpId> all = ops.empty() ? fused_ops() : std::vector<OpId>(ops.begin(), ops.end());
  SelfCheck result;
  for (const OpId op : all) {
    for (const OpCase& c : op_cases(op)) {
      if (!device.supports(c.image.record())) continue;
      ++result.cases;
      result.wrong = wrong_in(c, device, reference);
      if (!result.wrong.empty()) return result;
    }
  }
  return result;
}

}  // namespace inferno
