#include "kv/state_slots.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inferno {

StateSlots::StateSlots(Backend& backend, StateConfig config) : backend_(backend), config_(std::move(config)) {
  const auto slots = static_cast<size_t>(config_.slots);
  for (int32_t i = 0; i < static_cast<int32_t>(config_.layer_floats.size()); ++i) {
    if (layer_bytes(i) == 0) {
      memory_.emplace_back();
      continue;
    }
    memory_.push_back(backend.allocate_cache(i, (slots + 1) * layer_bytes(i)));
    const std::vector<float> zeros(static_cast<size_t>(config_.layer_floats[static_cast<size_t>(i)]));
    backend.upload(state(i, config_.slots), zeros.data(), layer_bytes(i));
  }
  for (int32_t slot = config_.slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

uint64_t StateSlots::slot_bytes(const StateConfig& config) {
  uint64_t sum = 0;
  for (const int64_t floats : config.layer_floats) sum += static_cast<uint64_t>(floats) * sizeof(float);
  return sum;
}

size_t StateSlots::layer_bytes(int32_t layer) const {
  return static_cast<size_t>(config_.layer_floats[static_cast<size_t>(layer)]) * sizeof(float);
}

int32_t StateSlots::allocate() {
  if (free_.empty()) return -1;
  const int32_t slot = free_.back();
  free_.pop_back();
  copy(config_.slots, slot);
  return slot;
}

void StateSlots::release(int32_t slot) {
  INFERNO_CHECK(slot >= 0 && slot < config_.slots && std::ranges::find(free_, slot) == free_.end());
  free_.push_back(slot);
}

void StateSlots::copy(int32_t from, int32_t to) {
  for (int32_t i = 0; i < static_cast<int32_t>(memory_.size()); ++i) {
    if (layer_bytes(i) > 0) backend_.copy_cache(i, state(i, to), state(i, from), layer_bytes(i));
  }
}

float* StateSlots::state(int32_t layer, int32_t slot) const {
  const auto i = static_cast<size_t>(layer);
  return layer_bytes(layer) == 0 ? nullptr : static_cast<float*>(memory_[i].data()) + slot * config_.layer_floats[i];
}

}  // namespace inferno
