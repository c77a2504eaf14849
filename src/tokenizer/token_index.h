// Hash tables for the inner loops of encoding: token bytes to id, and a pair of ids to what they merge into.
//
// Both are filled once and then only read, from any number of threads. Open addressing, at most half full. The hash is
// seeded per process: a model file cannot be made of strings that collide. Results never depend on the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace inferno {

class TokenIndex {
 public:
  explicit TokenIndex(size_t capacity);
  // The bytes are not copied and must outlive the index. Of equal strings the first stays; empty ones are ignored.
  void insert(std::string_view bytes, int32_t id);
  [[nodiscard]] std::optional<int32_t> find(std::string_view bytes) const;
  [[nodiscard]] size_t longest() const { return longest_; }

 private:
  struct Slot {
    std::string_view bytes;  // empty: free
    int32_t id = -1;
  };
  [[nodiscard]] size_t slot_of(std::string_view bytes) const;

  std::vector<Slot> slots_;  // (a power of two)
  size_t longest_ = 0;
};

struct Merge {
  uint32_t rank = UINT32_MAX;  // lower merges first; UINT32_MAX: these two do not merge
  int32_t id = -1;             // of the merged token
};

class MergeTable {
 public:
  explicit MergeTable(size_t capacity);
  // Of equal pairs the first stays.
  void insert(int32_t left, int32_t right, Merge merge);
  [[nodiscard]] Merge find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[slot_of(left, right)];
    return slot.merge;
  }

 private:
  struct Slot {
    int32_t left = -1;  // -1: free
    int32_t right = -1;
    Merge merge;
  };
  [[nodiscard]] size_t slot_of(int32_t left, int32_t right) const {
    const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right));
    const uint64_t mixed = (key ^ seed_) * 0x9E3779B97F4A7C15U;
    size_t slot = static_cast<size_t>((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9U >> shift_);
    while (slots_[slot].left >= 0 && (slots_[slot].left != left || slots_[slot].right != right)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  std::vector<Slot> slots_;  // (a power of two)
  uint64_t seed_;
  int shift_;  // the hash's top bits are the slot
};

}  // namespace inferno
