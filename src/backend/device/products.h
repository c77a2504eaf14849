// Ops as products of rows with weights: what linear, qkv_rope_store, gated_mlp and logits of every device are made of.
#pragma once

#include <cstdint>

#include "backend/plan.h"

namespace inferno::device {

// Rows of x, normalized or picked where that is given, times up to kMaxWeights weights that share them.
struct RowProduct {
  static constexpr int kMaxWeights = LinearArgs::kMaxWeights;

  const float* x = nullptr;  // [*, k]
  const int32_t* row_ids = nullptr;
  const Weight* norm = nullptr;
  float eps = 0;
  int64_t tokens = 0;
  int64_t k = 0;
  int count = 0;
  const Weight* w[kMaxWeights] = {};
  const Weight* bias[kMaxWeights] = {};
  void* out[kMaxWeights] = {};
  const float* residual = nullptr;

  // Weights that an op leaves out are none.
  void add(const Weight* weight, const Weight* with_bias, void* to) {
    if (weight == nullptr) return;
    w[count] = weight;
    bias[count] = with_bias;
    out[count++] = to;
  }
};

// All rows of x, normalized if `norm` is given; weights and outputs are not set.
[[nodiscard]] inline RowProduct rows_of(const Tensor& x, const Weight* norm, float eps) {
  return {.x = x.f32(), .norm = norm, .eps = eps, .tokens = x.rows(), .k = x.cols()};
}

[[nodiscard]] inline RowProduct product_of(const LinearArgs& a) {
  RowProduct job = rows_of(a.x, nullptr, 0);
  if (!a.rows.empty()) {
    job.row_ids = a.rows.as<int32_t>();
    job.tokens = a.rows.elements();
  }
  for (int i = 0; i < LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) {
    job.add(a.w[i], a.epilogue == Epilogue::swiglu ? nullptr : a.bias[i], a.out[i].data);
  }
  job.residual = a.residual.f32();
  return job;
}

// q, k and v; where their results go is the device's choice.
[[nodiscard]] inline RowProduct product_of(const QkvRopeStoreArgs& a) {
  RowProduct job = rows_of(a.x, a.norm, a.eps);
  for (int i = 0; i < 3; ++i) job.add(a.w[i], a.bias[i], nullptr);
  return job;
}

// The first product of an MLP, and the second, whose input the device chooses.
[[nodiscard]] inline RowProduct gate_up_of(const GatedMlpArgs& a) {
  RowProduct job = rows_of(a.x, a.norm, a.eps);
  job.add(a.gate, nullptr, nullptr);
  job.add(a.up, nullptr, nullptr);
  return job;
}
[[nodiscard]] inline RowProduct down_of(const GatedMlpArgs& a) {
  RowProduct job{.tokens = a.x.rows(), .k = a.down->cols(), .residual = a.residual.f32()};
  job.add(a.down, nullptr, a.out.data);
  return job;
}

[[nodiscard]] inline RowProduct product_of(const LogitsArgs& a) {
  RowProduct job = rows_of(a.x, a.norm, a.eps);
  job.row_ids = a.rows.as<int32_t>();
  job.tokens = a.rows.elements();
  job.add(a.head, nullptr, a.out.data);
  return job;
}

// Whether the op is made of products with weights, and all of them are such.
template <typename Predicate>
[[nodiscard]] bool all_products(const OpRecord& record, Predicate is) {
  switch (record.op()) {
    case OpId::linear:
      return is(product_of(record.args<LinearArgs>()));
    case OpId::qkv_rope_store:
      return is(product_of(record.args<QkvRopeStoreArgs>()));
    case OpId::gated_mlp:
      return is(gate_up_of(record.args<GatedMlpArgs>())) && is(down_of(record.args<GatedMlpArgs>()));
    case OpId::logits:
      return is(product_of(record.args<LogitsArgs>()));
    default:
      return false;
  }
}

}  // namespace inferno::device
