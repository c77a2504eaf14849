// Copies of recurrent states, taken where pages end, for requests that begin with the same tokens.
//
// Cached pages alone do not continue a sequence in a model with recurrent layers: the state at their end must be there
// too. A snapshot is found by the key of all tokens before it (page_pool.h). There are few, because a state may be as
// large as thousands of positions: the one that was not used for longest gives way.
//
// Allocates only when made. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/page_pool.h"
#include "kv/state_slots.h"

namespace inferno {

class StateSnapshots {
 public:
  // Takes `count` of the slots for itself.
  StateSnapshots(StateSlots& slots, int32_t count);

  // The slot with the state after the tokens of that key, which counts as used now; -1: there is none.
  [[nodiscard]] int32_t find(const PageKey& key);
  // Keeps a copy of the state in `slot`: in the place of `replaced` where that is still there, else of the oldest.
  void keep(const PageKey& key, int32_t slot, const PageKey& replaced);

 private:
  struct Entry {
    PageKey key;
    int32_t slot = -1;
    uint64_t used = 0;  // 0: holds nothing
  };
  StateSlots& slots_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace inferno
