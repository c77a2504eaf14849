// Fixed-size state per sequence, for layers that carry a recurrence instead of keys and values.
//
// A slot holds the state of every such layer for one sequence, f32. Slots are copied, not shared: a state cannot be cut
// back to an earlier position, so a sequence that begins like another one continues from a copy taken at that position.
//
// Allocates only when made. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace inferno {

struct StateConfig {
  std::vector<int64_t> layer_floats;  // of each layer; 0: it has no state
  int32_t slots = 0;
};

class StateSlots {
 public:
  StateSlots(Backend& backend, StateConfig config);

  [[nodiscard]] static uint64_t slot_bytes(const StateConfig& config);
  [[nodiscard]] int32_t available() const { return static_cast<int32_t>(free_.size()); }
  // A slot whose states are zero, or -1 when none is left.
  [[nodiscard]] int32_t allocate();
  void release(int32_t slot);
  void copy(int32_t from, int32_t to);
  // f32 [layer_floats[layer]]; null for a layer without state.
  [[nodiscard]] float* state(int32_t layer, int32_t slot) const;

 private:
  [[nodiscard]] size_t layer_bytes(int32_t layer) const;

  Backend& backend_;
  StateConfig config_;
  std::vector<Buffer> memory_;  // per layer, [slots + 1, layer_floats]; the last slot stays zero
  std::vector<int32_t> free_;   // the next slot to give out is last
};

}  // namespace inferno
