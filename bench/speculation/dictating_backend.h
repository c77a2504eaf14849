// A backend whose draws are dictated: with it a model of random weights writes any text at its own speed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/decorator.h"
#include "backend/sampling.h"

namespace inferno {

// Replaces draws: the token at position p is text[p].
class DictatingBackend final : public BackendDecorator {
 public:
  explicit DictatingBackend(std::unique_ptr<Backend> inner) : BackendDecorator(std::move(inner)) {}
  void dictate(std::vector<int32_t> text) { text_ = std::move(text); }

  void begin_step(StepMode mode) override {
    sampled_.reset();
    planning_ = mode == StepMode::plan;
    BackendDecorator::begin_step(mode);
  }
  void sample(const SampleArgs& args) override {
    if (!planning_) sampled_ = args;
    BackendDecorator::sample(args);
  }
  void end_step() override {
    BackendDecorator::end_step();
    if (!sampled_ || text_.empty()) return;
    const auto* rows = static_cast<const SampleRow*>(sampled_->rows.data);
    auto* out = static_cast<int32_t*>(sampled_->out.data);
    for (int64_t i = 0; i < sampled_->out.elements(); ++i) {
      const auto position = static_cast<size_t>(rows[i].position);
      if (position < text_.size()) out[i] = text_[position];
    }
  }

 private:
  std::vector<int32_t> text_;
  std::optional<SampleArgs> sampled_;
  bool planning_ = false;
};

}  // namespace inferno
