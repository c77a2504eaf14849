// A set of characters: Unicode code points without surrogates, as sorted ranges that do not touch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace inferno::grammar {

struct CharRange {
  uint32_t low, high;  // both belong to it
};

class CharSet {
 public:
  static constexpr uint32_t kLast = 0x10FFFF;

  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges);
  [[nodiscard]] static CharSet all();

  void add(uint32_t low, uint32_t high);
  void add(const CharSet& other);
  [[nodiscard]] CharSet negated() const;
  [[nodiscard]] CharSet without(const CharSet& other) const;
  [[nodiscard]] bool contains(uint32_t c) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] std::span<const CharRange> ranges() const { return ranges_; }

 private:
  std::vector<CharRange> ranges_;
};

struct ByteRange {
  uint8_t low, high;
};

// Calls `use` with sequences of byte ranges that together are the UTF-8 forms of all characters of the set.
void utf8_sequences(const CharSet& set, const std::function<void(std::span<const ByteRange>)>& use);
// The UTF-8 form of one character.
[[nodiscard]] std::array<uint8_t, 4> utf8_bytes(uint32_t c, int& length);

}  // namespace inferno::grammar
