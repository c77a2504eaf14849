// Predicts the time of a step before its model is loaded.
//
// Every different op of the step (by shapes, types and cache lengths) is timed on the backend that will run it, with
// zero weights. In a real step all other weights are read between two runs of an op; so the trial reads about the same
// number of other bytes in between, and the op finds its weights where it will in the model: in a cache or in memory.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/op_image.h"
#include "backend/plan.h"

namespace inferno {

class StepPredictor {
 public:
  // `weight_bytes` of the whole model; `backend` is the one that will run it.
  StepPredictor(Backend& backend, double weight_bytes);

  // Microseconds of an op that was recorded on `recorder`.
  [[nodiscard]] double op_us(const OpRecord& record, Backend& recorder);

 private:
  // A product that reads its share of the model's other weights.
  struct Others {
    OpImage image;
    std::unique_ptr<WeightCopies> weights;
    std::unique_ptr<PlacedOp> op;
  };

  [[nodiscard]] double try_out(const OpRecord& record, Backend& recorder);
  [[nodiscard]] double run_once(const PlacedOp& op);

  Backend& backend_;
  std::array<Others, 2> others_;  // before and after the op
  std::map<std::string, double> known_us_;
};

}  // namespace inferno
