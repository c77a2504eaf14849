#include "kv/state_snapshots.h"

#include <algorithm>

#include "base/error.h"

namespace inferno {

StateSnapshots::StateSnapshots(StateSlots& slots, int32_t count) : slots_(slots) {
  for (int32_t i = 0; i < count; ++i) {
    entries_.push_back({.key = {}, .slot = slots.allocate()});
    INFERNO_CHECK(entries_.back().slot >= 0);
  }
}

int32_t StateSnapshots::find(const PageKey& key) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& e) { return e.used > 0 && e.key == key; });
  if (found == entries_.end()) return -1;
  found->used = ++uses_;
  return found->slot;
}

void StateSnapshots::keep(const PageKey& key, int32_t slot, const PageKey& replaced) {
  if (entries_.empty() || find(key) >= 0) return;
  auto place = std::ranges::find_if(entries_, [&](const Entry& e) { return e.used > 0 && e.key == replaced; });
  if (place == entries_.end()) place = std::ranges::min_element(entries_, {}, &Entry::used);
  slots_.copy(slot, place->slot);
  place->key = key;
  place->used = ++uses_;
}

}  // namespace inferno
