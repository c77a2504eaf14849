// Checking ops against a reference backend while a model runs.
//
// Lockstep: every op runs on both sides; the reference's outputs, and the cache rows it wrote, then replace the tested
// side's, so that errors do not pile up and the op to blame is the one that is named. Shadow: one op in N is computed
// again on the reference and compared; the run itself is left alone.
//
// Ops connected by private results run, and are compared, as the group they are: what is checked is what users run.
// Where a group diverges for the first time, its ops are compared once more, one by one, to name the one to blame.
//
// The decorator sits around the tested backend; the reference gets each group with copies of its inputs and weights of
// its own, so the two may have nothing in common. A group whose quantized products the tested backend computes in wide
// mode (Backend::is_wide) has more precise activations than the contract's 8 bits: it is held to an exact reference,
// which runs default bodies in f32, and to the narrower limits of bf16.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/decorator.h"
#include "backend/op_group.h"
#include "backend/op_image.h"
#include "verify/compare.h"
#include "verify/plant.h"

namespace inferno {

// An op, or a group of them, that was compared.
struct OpCheck {
  std::vector<OpId> ops;
  int layer = -1;
  int64_t step = 0;
  int64_t index = 0;  // of the first op in its step
  std::string args;   // with shapes and types
  FieldDifference worst;
  double limit = 0;  // of the worst field
  // The op that diverges by itself. None: nothing diverges, or only the group as a whole does. Of groups it is looked
  // for once, at the first divergence.
  std::optional<OpId> blamed;

  [[nodiscard]] bool diverges() const { return worst.beyond(limit); }
  // "attention", or "qkv_rope_store + attention + linear".
  [[nodiscard]] std::string name() const;
  // Of a group that diverges: ", of which attention diverges by itself, too", or that none does.
  [[nodiscard]] std::string blame() const;
};

// All calls of one op or group.
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
  int64_t every = 1;          // 1: lockstep; N: shadow, one op or group in N
  bool exchanges = false;     // there are several ranks: what they exchange runs on the tested side alone
  std::optional<OpId> plant;  // make the tested side compute this op wrongly (plant.h)
};

class CheckingBackend final : public BackendDecorator {
 public:
  // `exact` runs default bodies; without it the reference computes wide groups, too.
  CheckingBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference, const CheckOptions& options,
                  std::unique_ptr<Backend> exact = nullptr);

  void begin_step(StepMode mode) override;
  void end_step() override;
#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

  // Ops that were compared, alone or in groups.
  [[nodiscard]] int64_t checked() const { return checked_; }
  [[nodiscard]] bool has_checked(OpId op) const;
  [[nodiscard]] const std::map<std::vector<OpId>, OpCheckTotals>& totals() const { return totals_; }
  [[nodiscard]] const std::optional<OpCheck>& last() const { return last_; }
  // The first op or group beyond its limit, and everything it read.
  [[nodiscard]] const std::optional<OpCheck>& first_divergence() const { return first_; }
  [[nodiscard]] const OpImage& first_image() const { return first_image_; }
  // The checks nearest to, or furthest beyond, their limits; worst first.
  [[nodiscard]] const std::vector<OpCheck>& worst() const { return worst_; }

  // A table of ops and the worst offenders.
  [[nodiscard]] std::string report() const;

 private:
  // What a group read, and what the two sides made of it.
  struct Outcome {
    OpCheck check;
    OpImage inputs, tested, expected;
  };

  template <typename Args>
  void collect(const Args& args);
  void check(std::span<const OpRecord> group, int64_t index);
  // Runs the group on both sides; an error is planted into the arguments, or into what an op wrote.
  Outcome run_both(std::span<const OpRecord> group, bool plant_arguments);
  // What the group's ops are held to, one by one.
  [[nodiscard]] std::vector<Numerics> numerics_of(std::span<const OpRecord> group) const;
  // Puts the inputs back and compares the ops of a group one by one.
  std::optional<OpId> find_blamed(std::span<const OpRecord> group, const OpImage& inputs);
  void note(const OpCheck& check, const OpImage& inputs);
  // One of every N groups, at a place that changes: always the first of them would be always the same op of a step
  // whose length N divides.
  bool is_due();

  // A backend to compare with, and copies of the weights there.
  struct Reference {
    explicit Reference(std::unique_ptr<Backend> of) : backend(std::move(of)) { clear(); }
    void clear() { weights = backend == nullptr ? nullptr : std::make_unique<WeightCopies>(*backend); }
    std::unique_ptr<Backend> backend;
    std::unique_ptr<WeightCopies> weights;
  };
  Reference reference_;
  Reference exact_;
  CheckOptions options_;
  std::optional<WrongArguments> wrong_;
  OpGroup group_;  // not yet complete
  bool planning_ = false;
  int layer_ = -1;
  int64_t step_ = -1;
  int64_t index_ = 0;
  int64_t seen_ = 0;
  int64_t due_place_ = 0;  // among the N
  int64_t checked_ = 0;
  std::map<std::vector<OpId>, OpCheckTotals> totals_;
  std::optional<OpCheck> last_;
  std::optional<OpCheck> first_;
  OpImage first_image_;
  std::vector<OpCheck> worst_;
};

// Runs the image on both backends and compares; of default bodies the first primitive that diverges, if one does.
[[nodiscard]] OpCheck check_image(const OpImage& image, std::unique_ptr<Backend> tested,
                                  std::unique_ptr<Backend> reference, Numerics numerics,
                                  std::unique_ptr<Backend> exact = nullptr);

}  // namespace inferno
