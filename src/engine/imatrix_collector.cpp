#include "engine/imatrix_collector.h"

#include <utility>

#include "base/error.h"

namespace inferno {

ImatrixCollector::ImatrixCollector(std::unique_ptr<Backend> inner) : BackendDecorator(std::move(inner)) {
  if (!this->inner().cpu_numerics()) {
    fail_usage("an imatrix is measured on a CPU, not on `backend` {}", this->inner().name());
  }
}

Imatrix ImatrixCollector::result() const {
  Imatrix imatrix;
  for (const auto& [name, sums] : sums_) {
    Importance entry{std::vector<float>(sums.squares.begin(), sums.squares.end()), {static_cast<float>(sums.rows)}};
    imatrix.entries.emplace(name, std::move(entry));
  }
  return imatrix;
}

void ImatrixCollector::begin_step(StepMode mode) {
  mode_ = mode;
  used_ = 0;
  BackendDecorator::begin_step(mode);
}

// The inner backend would hand out memory that its own ops may take next.
void* ImatrixCollector::scratch(size_t bytes) {
  if (used_ == blocks_.size()) blocks_.emplace_back();
  std::vector<std::byte>& block = blocks_[used_++];
  if (block.size() < bytes) block.resize(bytes);
  return block.data();
}

void ImatrixCollector::collect(const Weight& weight, const Tensor& x) {
  if (weight.layer() == kNoLayer) return;
  Sums& sums = sums_[weight.name()];
  const auto cols = static_cast<size_t>(x.cols());
  sums.squares.resize(cols);
  for (int64_t row = 0; row < x.rows(); ++row) {
    const float* values = x.f32() + row * x.cols();
    for (size_t c = 0; c < cols; ++c) sums.squares[c] += double{values[c]} * values[c];
  }
  sums.rows += x.rows();
}

void ImatrixCollector::linear(const LinearArgs& args) {
  if (mode_ == StepMode::run && args.rows.empty()) {
    inner().synchronize();
    for (const Weight* weight : args.w) {
      if (weight != nullptr) collect(*weight, args.x);
    }
  }
  inner().linear(args);
}

template <typename Args>
void ImatrixCollector::run_body(const Args& args, void (*body)(Backend&, const Args&)) {
  Args plain = args;
  if constexpr (requires { plain.private_result; }) plain.private_result = false;
  body(outermost(), plain);
  inner().synchronize();
  used_ = 0;
}

void ImatrixCollector::qkv_rope_store(const QkvRopeStoreArgs& args) {
  run_body(args, fused_defaults::qkv_rope_store);
}

void ImatrixCollector::gated_mlp(const GatedMlpArgs& args) {
  run_body(args, fused_defaults::gated_mlp);
}

void ImatrixCollector::layer_input(const LayerInputArgs& args) {
  run_body(args, fused_defaults::layer_input);
}

// Its result is looked at by the linear after it.
void ImatrixCollector::attention(const AttentionArgs& args) {
  AttentionArgs plain = args;
  plain.private_result = false;
  inner().attention(plain);
}

}  // namespace inferno
