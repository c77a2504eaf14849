// Checking ops against a reference backend while a model runs.
//
// Lockstep: every op runs on both sides; the reference's outputs, and the cache rows it wrote, then replace the tested
// side's, so that errors do not pile up and the op to blame is the one that is named. Shadow: one op in N is computed
// again on the reference and compared; the run itself is left alone.
//
// The decorator sits around the tested backend; the reference gets each op with copies of its inputs and weights of its
// own, so the two may have nothing in common.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/decorator.h"
#include "backend/op_image.h"
#include "verify/compare.h"

namespace inferno {

// One op that was compared.
struct OpCheck {
  OpId op = OpId::count;
  int layer = -1;
  int64_t step = 0;
  int64_t index = 0;  // of the op in its step
  std::string args;   // with shapes and types
  FieldDifference worst;
  double limit = 0;

  [[nodiscard]] bool diverges() const { return worst.nmse > limit; }
};

// All calls of one op.
struct OpCheckTotals {
  int64_t calls = 0;
  int64_t diverging = 0;
  double max_abs = 0;
  uint64_t max_ulp = 0;
  double max_nmse = 0;
  double limit = 0;
};

struct CheckOptions {
  Numerics numerics = Numerics::cpu_kernels;
  int64_t every = 1;          // 1: lockstep; N: shadow, one op in N
  std::optional<OpId> plant;  // falsify what the tested side computed for this op
};

class CheckingBackend final : public BackendDecorator {
 public:
  CheckingBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference, const CheckOptions& options);

  void begin_step(StepMode mode) override;
#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

  [[nodiscard]] int64_t checked() const { return checked_; }
  [[nodiscard]] const std::array<OpCheckTotals, kOpCount>& totals() const { return totals_; }
  // The first op beyond its limit, and everything it read.
  [[nodiscard]] const std::optional<OpCheck>& first_divergence() const { return first_; }
  [[nodiscard]] const OpImage& first_image() const { return first_image_; }
  // The checks nearest to, or furthest beyond, their limits; worst first.
  [[nodiscard]] const std::vector<OpCheck>& worst() const { return worst_; }

  // A table of ops and the worst offenders.
  [[nodiscard]] std::string report() const;

 private:
  template <typename Args>
  void check(const Args& args);
  void note(const OpCheck& check, const OpImage& inputs);
  // One of every N ops, at a place that changes: always the first of them would be always the same op of a step whose
  // length N divides.
  bool is_due();

  std::unique_ptr<Backend> reference_;
  std::unique_ptr<WeightCopies> weights_;
  CheckOptions options_;
  bool planning_ = false;
  int layer_ = -1;
  int64_t step_ = -1;
  int64_t index_ = 0;
  int64_t seen_ = 0;
  int64_t due_place_ = 0;  // among the N
  int64_t checked_ = 0;
  std::array<OpCheckTotals, kOpCount> totals_ = {};
  std::optional<OpCheck> first_;
  OpImage first_image_;
  std::vector<OpCheck> worst_;
};

// Falsifies the first value the op wrote, by more than any limit allows.
void plant_error(OpImage& image);
// Runs the image on both backends and compares.
[[nodiscard]] OpCheck check_image(const OpImage& image, Backend& tested, Backend& reference, Numerics numerics);

}  // namespace inferno
