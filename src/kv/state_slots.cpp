#include "kv/state_slots.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inferno {
namespace {

size_t state_bytes(int64_t floats) {
  return static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace

StateSlots::StateSlots(Backend& backend, StateConfig config) : backend_(backend), config_(std::move(config)) {
  for (int32_t i = 0; i < static_cast<int32_t>(config_.layer_floats.size()); ++i) {
    auto& memory = memory_.emplace_back();
    for (size_t part = 0; part < memory.size(); ++part) {
      const size_t bytes =
          static_cast<size_t>(config_.slots) * state_bytes(config_.layer_floats[static_cast<size_t>(i)][part]);
      if (bytes > 0) memory[part] = backend.allocate_cache(i, bytes);
    }
  }
  for (int32_t slot = config_.slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

uint64_t StateSlots::slot_bytes(const StateConfig& config) {
  uint64_t sum = 0;
  for (const StateSizes& layer : config.layer_floats) {
    for (const int64_t floats : layer) sum += state_bytes(floats);
  }
  return sum;
}

int32_t StateSlots::allocate() {
  if (free_.empty()) return -1;
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateSlots::release(int32_t slot) {
  INFERNO_CHECK(slot >= 0 && slot < config_.slots && std::ranges::find(free_, slot) == free_.end());
  free_.push_back(slot);
}

void StateSlots::copy(int32_t from, int32_t to) {
  for (int32_t i = 0; i < static_cast<int32_t>(memory_.size()); ++i) {
    for (int32_t part = 0; part < 2; ++part) {
      const Tensor all = states(i, part);
      if (all.empty()) continue;
      const Tensor target = all.row_range(to, 1);
      backend_.copy_cache(i, target.data, all.row_range(from, 1).data, static_cast<size_t>(target.bytes()));
    }
  }
}

Tensor StateSlots::states(int32_t layer, int32_t part) const {
  const auto i = static_cast<size_t>(layer);
  const auto j = static_cast<size_t>(part);
  const int64_t floats = config_.layer_floats[i][j];
  return floats == 0 ? Tensor{} : Tensor{memory_[i][j].data(), Shape(config_.slots, floats)};
}

}  // namespace inferno
