// Fixed-size state per sequence, for layers that carry a recurrence instead of keys and values.
//
// A slot holds the state of every such layer for one sequence, f32. What it holds at first is undefined: at position 0
// ops begin with zeros. Slots are copied, not shared: a state cannot be cut back to an earlier position, so a sequence
// that begins like another one continues from a copy taken at that position.
//
// Allocates only when made. Used by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace inferno {

// A layer may have several states, one for each of its ops that has any.
using StateSizes = std::array<int64_t, 2>;

struct StateConfig {
  std::vector<StateSizes> layer_floats;  // of each layer; 0: it has none
  int32_t slots = 0;
};

class StateSlots {
 public:
  StateSlots(Backend& backend, StateConfig config);

  [[nodiscard]] static uint64_t slot_bytes(const StateConfig& config);
  [[nodiscard]] int32_t available() const { return static_cast<int32_t>(free_.size()); }
  // A slot, or -1 when none is left.
  [[nodiscard]] int32_t allocate();
  void release(int32_t slot);
  // Between steps.
  void copy(int32_t from, int32_t to);
  // f32 [slots, layer_floats[layer][part]]; empty for a layer without such a state.
  [[nodiscard]] Tensor states(int32_t layer, int32_t part) const;

 private:
  Backend& backend_;
  StateConfig config_;
  std::vector<std::array<Buffer, 2>> memory_;  // per layer
  std::vector<int32_t> free_;                  // the next slot to give out is last
};

}  // namespace inferno
