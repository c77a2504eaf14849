// Which ops a device needs kernels for first: those that every family has. Metal has these; CUDA has all.
#pragma once

#include <string_view>

#include "backend/backend.h"

namespace inferno::device {

// False of ops that only some families have.
[[nodiscard]] inline bool has_kernel(OpId op) {
  switch (op) {
    case OpId::layer_norm:
    case OpId::moe_mlp:
    case OpId::all_gather:  // of one rank
    case OpId::pass_on:     // the same
    case OpId::short_conv:
    case OpId::delta_net:
    case OpId::mamba2:
    case OpId::layer_input:
    case OpId::latent_store:
    case OpId::head_linear:
      return false;
    default:
      return true;
  }
}

// Of an op that has none.
[[nodiscard]] inline std::string_view who_needs(OpId op) {
  switch (op) {
    case OpId::layer_norm:
      return "embedding models with layer norms";
    case OpId::moe_mlp:
      return "models with experts";
    case OpId::layer_input:
      return "models with inputs of layers";
    case OpId::latent_store:
    case OpId::head_linear:
      return "models with latent attention";
    default:
      return "models with a recurrent state";
  }
}

[[nodiscard]] inline bool is_cache_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0;
}

// True while it exists: ops are planned, not run.
class Planning {
 public:
  explicit Planning(bool& planning) : planning_(planning) { planning_ = true; }
  ~Planning() { planning_ = false; }
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

 private:
  bool& planning_;
};

}  // namespace inferno::device
