// Finds the op that made the first result that is not finite: how an engine explains logits that are not numbers.
#pragma once

#include <optional>
#include <string>

#include "backend/decorator.h"
#include "backend/op_fields.h"

namespace inferno {

struct NonFinite {
  OpId op = OpId::count;
  int layer = kNoLayer;
  std::string field = {};
};

// Around a backend that it borrows, for steps of the caller's own: every op runs by itself, and what it wrote is looked
// at. Slow. The backend is as before when this is destroyed.
class FiniteWatch final : public BackendDecorator {
 public:
  // `outermost` is the backend's own before the call.
  FiniteWatch(Backend& backend, Backend& outermost);
  ~FiniteWatch() override;
  FiniteWatch(const FiniteWatch&) = delete;
  FiniteWatch& operator=(const FiniteWatch&) = delete;

  [[nodiscard]] const std::optional<NonFinite>& found() const { return found_; }

  void begin_step(StepMode mode) override;
#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

 private:
  template <typename Args>
  void watch(const Args& args);
  void look(const OpRecord& record);

  Backend& before_;
  StepMode mode_ = StepMode::plan;
  int depth_ = 0;  // default bodies call ops through this; masks inside of them are infinite
  int layer_ = kNoLayer;
  std::optional<NonFinite> found_;
};

}  // namespace inferno
