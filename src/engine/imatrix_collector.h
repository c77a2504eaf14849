// Measures an imatrix (model/imatrix.h): a decorator that sums the squares of what every matrix of the layers is
// multiplied with. The output head is left out: its input says little about the rows of an embedding that serves as it.
//
// Goes around a backend whose memory the host sees. The ops that multiply inside (the MLP, the projections) run as the
// simpler ops that define them, so that every product passes through linear(); slower, and it allocates in a step.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/decorator.h"
#include "model/imatrix.h"

namespace inferno {

class ImatrixCollector final : public BackendDecorator {
 public:
  // A backend with memory of its own is an Error.
  explicit ImatrixCollector(std::unique_ptr<Backend> inner);

  // Of all steps so far; datasets and chunks are the caller's to fill in.
  [[nodiscard]] Imatrix result() const;

  void begin_step(StepMode mode) override;
  [[nodiscard]] void* scratch(size_t bytes) override;
  void linear(const LinearArgs& args) override;
  void qkv_rope_store(const QkvRopeStoreArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void gated_mlp(const GatedMlpArgs& args) override;
  void layer_input(const LayerInputArgs& args) override;

 private:
  struct Sums {
    std::vector<double> squares;  // (cols)
    int64_t rows = 0;
  };
  template <typename Args>
  void run_body(const Args& args, void (*body)(Backend&, const Args&));
  void collect(const Weight& weight, const Tensor& x);

  std::map<std::string, Sums, std::less<>> sums_;
  StepMode mode_ = StepMode::plan;
  // Temporaries of the body that runs, reused by the next: blocks_[0 .. used_) are taken.
  std::vector<std::vector<std::byte>> blocks_;
  size_t used_ = 0;
};

}  // namespace inferno
