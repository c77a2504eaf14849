#include "tokenizer/token_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace inferno {

namespace {

// At least two slots, so that the shift stays below 64 and a free slot always ends a search.
size_t slot_count(size_t capacity) {
  return std::bit_ceil(std::max<size_t>(capacity, 1) * 2);
}

uint64_t process_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

uint64_t mix(uint64_t value) {
  value *= 0xBF58476D1CE4E5B9U;
  return value ^ value >> 31;
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = process_seed() ^ bytes.size();
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word) + word;
    bytes.remove_prefix(8);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data(), bytes.size());
  return mix(mix(hash ^ tail) + process_seed());
}

}  // namespace

TokenIndex::TokenIndex(size_t capacity) : slots_(slot_count(capacity)) {}

size_t TokenIndex::slot_of(std::string_view bytes) const {
  size_t slot = hash_bytes(bytes) & (slots_.size() - 1);
  while (!slots_[slot].bytes.empty() && slots_[slot].bytes != bytes) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void TokenIndex::insert(std::string_view bytes, int32_t id) {
  if (bytes.empty()) return;
  Slot& slot = slots_[slot_of(bytes)];
  if (!slot.bytes.empty()) return;
  slot = {bytes, id};
  longest_ = std::max(longest_, bytes.size());
}

std::optional<int32_t> TokenIndex::find(std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > longest_) return std::nullopt;
  const Slot& slot = slots_[slot_of(bytes)];
  if (slot.bytes.empty()) return std::nullopt;
  return slot.id;
}

MergeTable::MergeTable(size_t capacity)
    : slots_(slot_count(capacity)), seed_(process_seed()), shift_(64 - std::countr_zero(slots_.size())) {}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left < 0) slot = {left, right, merge};
}

}  // namespace inferno
