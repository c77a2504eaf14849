// What an op costs at the least: bytes that must move and operations that must be done, from its args alone.
//
// Each weight counts once with its size in the file, each cached row once, each tensor once. What a kernel moves beyond
// that (another layout, a second reading) is its own loss.
#pragma once

#include "backend/backend.h"
#include "backend/plan.h"

namespace inferno {

// The units that multiply: which peak a product is measured against.
enum class Multiply : uint8_t { f32, f16, bf16, int8 };
inline constexpr int kMultiplyKinds = 4;
[[nodiscard]] std::string_view multiply_name(Multiply kind);
// How weights of a type meet activations.
[[nodiscard]] Multiply multiply_of(DType weight);

struct OpCost {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double activation_bytes = 0;
  double operations = 0;  // a multiplication and its addition are two
  Multiply multiply = Multiply::f32;

  // What a step reads once and the next step again, in contrast to activations, which one op hands to the next.
  [[nodiscard]] double stream_bytes() const { return weight_bytes + kv_bytes; }
  [[nodiscard]] double bytes() const { return stream_bytes() + activation_bytes; }
};

// `backend` holds the op's batch, whose lengths say how much cache an attention reads.
[[nodiscard]] OpCost op_cost(const OpRecord& record, Backend& backend);

}  // namespace inferno
