// The ops of a step as they are recorded, compared with those of an earlier step.
//
// While they are the same they are only counted; they are copied once they differ. So a device that keeps what it made
// of a step (a graph, a list of commands) knows at the step's end whether that can run again, and recording a step that
// repeats writes nothing. Recording never allocates.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/device/same_op.h"
#include "backend/plan.h"
#include "base/error.h"

namespace inferno::device {

class StepRecorder {
 public:
  // Steps of more ops than `capacity` are a programmer's error.
  explicit StepRecorder(size_t capacity) : capacity_(capacity) { ops_.reserve(capacity); }

  // Forgets what was recorded. What follows is compared with `earlier`, which must not change before the next call of
  // this or of ops(); null: with nothing.
  void begin(const std::vector<OpRecord>* earlier = nullptr) {
    ops_.clear();
    earlier_ = earlier;
    matched_ = 0;
  }

  template <typename Args>
  void record(const Args& args) {
    if (earlier_ != nullptr) {
      if (matched_ < earlier_->size() && (*earlier_)[matched_].op() == OpOf<Args>::kId &&
          same_args((*earlier_)[matched_].template args<Args>(), args)) {
        ++matched_;
        return;
      }
      (void)ops();
    }
    INFERNO_CHECK(ops_.size() < capacity_);
    ops_.emplace_back().assign(args);
  }

  [[nodiscard]] bool empty() const { return earlier_ == nullptr ? ops_.empty() : matched_ == 0; }
  // Whether what was recorded is all of the earlier step.
  [[nodiscard]] bool repeats() const { return earlier_ != nullptr && matched_ == earlier_->size(); }
  // What was recorded; from now on it is compared with nothing. May be swapped with another vector of that capacity.
  [[nodiscard]] std::vector<OpRecord>& ops() {
    if (earlier_ != nullptr) {
      ops_.assign(earlier_->begin(), earlier_->begin() + static_cast<ptrdiff_t>(matched_));
      earlier_ = nullptr;
    }
    return ops_;
  }

 private:
  size_t capacity_;
  std::vector<OpRecord> ops_;                       // empty while there is an earlier step
  const std::vector<OpRecord>* earlier_ = nullptr;  // its first matched_ ops are those of this step so far
  size_t matched_ = 0;
};

}  // namespace inferno::device
