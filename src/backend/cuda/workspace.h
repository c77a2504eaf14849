// Scratch memory of the ops, by purpose.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/device_memory.h"
#include "backend/device/workspace.h"

namespace inferno::cuda {

enum class Region : uint8_t {
  raw_heads,       // q, k, v between projection and attention
  narrow_q,        // rotated q in the cache's type
  activated,       // the MLP's middle, f32
  wide_x,          // a linear's input, converted for a matrix product
  gate_up,         // results of gate and up
  wide_middle,     // their SwiGLU, converted
  unpacked,        // rows of a quantized weight as bf16
  partials,        // splits of attention
  counters,        // blocks that are done; zero between ops
  chain_counters,  // the same of batch_chain.cuh
  sampling,
  normed,       // rows that several products read, normalized
  product,      // what a product gives before norms and scales
  normed_x,     // what a product stores for the next one: rows multiplied with norm weights
  squares,      // and their squares
  routing,      // of experts: logits, choices, lists
  expert_gate,  // the same of chosen experts: gate and middle
  expert_up,
  expert_out,
  layer_stream,  // the residual stream between halves of a layer
  count
};

class Workspace {
 public:
  explicit Workspace(std::shared_ptr<FreeCount> frees) : frees_(std::move(frees)) {}

  // At least `bytes` of the region. Growing waits for the device, because ops in flight may use the old memory.
  [[nodiscard]] void* get(Region region, int64_t bytes);

 private:
  std::shared_ptr<FreeCount> frees_;
  device::Workspace<Region, DeviceMemory> regions_;
};

}  // namespace inferno::cuda
