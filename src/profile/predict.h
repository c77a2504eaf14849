// How long a step will take, before its model is loaded.
//
// Ops with weight matrices are predicted from the speed of the backend's own linear kernel for the matrix's type, tried
// out on a matrix of the model's row length that is about as hard to cache as the model. All other ops are run once as
// they are. The limit beside it is the roofline: bytes at the machine's bandwidth, operations at its multiply peak.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/plan.h"

namespace inferno {

class StepPredictor {
 public:
  // `weight_bytes` of the whole model; `backend` is the one that will run it.
  StepPredictor(Backend& backend, double weight_bytes) : backend_(backend), weight_bytes_(weight_bytes) {}

  // Microseconds of an op that was written down on `recorder`.
  [[nodiscard]] double op_us(const OpRecord& record, Backend& recorder);
  // Ops without matrices are tried once per step, for what they take depends on its lengths.
  void begin_step() { other_us_.clear(); }

 private:
  [[nodiscard]] double matrix_us(const Weight& w, int64_t tokens);
  [[nodiscard]] double other_us(const OpRecord& record, Backend& recorder);

  struct Trial {
    DType dtype;
    int64_t k;
    int64_t tokens;
    friend auto operator<=>(const Trial&, const Trial&) = default;
  };

  Backend& backend_;
  double weight_bytes_;
  std::map<Trial, double> us_per_byte_;                  // of a matrix
  std::map<std::pair<OpId, int64_t>, double> other_us_;  // by op and tokens
};

}  // namespace inferno
