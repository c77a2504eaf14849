#include "grammar/char_set.h"

#include <algorithm>

namespace inferno::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;
// The last character of 1, 2, 3 and 4 bytes.
constexpr std::array<uint32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, CharSet::kLast};

using Use = std::function<void(std::span<const ByteRange>)>;

// low and high have the same length. Where they differ before the last byte, the range is cut so that every byte but
// the first that differs runs through all its values.
void split(uint32_t low, uint32_t high, const Use& use) {
  int length = 0;
  (void)utf8_bytes(low, length);
  for (int i = 1; i < length; ++i) {
    const uint32_t mask = (1U << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      split(low, low | mask, use);
      split((low | mask) + 1, high, use);
      return;
    }
    if ((high & mask) != mask) {
      split(low, (high & ~mask) - 1, use);
      split(high & ~mask, high, use);
      return;
    }
  }
  const std::array<uint8_t, 4> first = utf8_bytes(low, length);
  const std::array<uint8_t, 4> last = utf8_bytes(high, length);
  std::array<ByteRange, 4> sequence{};
  for (size_t i = 0; i < static_cast<size_t>(length); ++i) sequence[i] = {first[i], last[i]};
  use(std::span(sequence).first(static_cast<size_t>(length)));
}

}  // namespace

CharSet::CharSet(std::initializer_list<CharRange> ranges) {
  for (const CharRange& range : ranges) add(range.low, range.high);
}

CharSet CharSet::all() {
  CharSet set;
  set.add(0, kLast);
  return set;
}

void CharSet::add(uint32_t low, uint32_t high) {
  high = std::min(high, kLast);
  if (low > high) return;
  if (low <= kLastSurrogate && high >= kFirstSurrogate) {
    if (low < kFirstSurrogate) add(low, kFirstSurrogate - 1);
    if (high > kLastSurrogate) add(kLastSurrogate + 1, high);
    return;
  }
  // The first range that ends at or after the place before `low` may be joined with it, and those after it.
  auto first = std::ranges::lower_bound(ranges_, low == 0 ? 0 : low - 1, {}, &CharRange::high);
  auto last = first;
  while (last != ranges_.end() && last->low <= high + 1) {
    low = std::min(low, last->low);
    high = std::max(high, last->high);
    ++last;
  }
  if (first == last) {
    ranges_.insert(first, {low, high});
  } else {
    *first = {low, high};
    ranges_.erase(first + 1, last);
  }
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) add(range.low, range.high);
}

CharSet CharSet::negated() const {
  CharSet result;
  uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.low > next) result.add(next, range.low - 1);
    next = range.high + 1;
  }
  result.add(next, kLast);
  return result;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet outside = negated();
  outside.add(other);
  return outside.negated();
}

bool CharSet::contains(uint32_t c) const {
  const auto range = std::ranges::lower_bound(ranges_, c, {}, &CharRange::high);
  return range != ranges_.end() && range->low <= c;
}

std::array<uint8_t, 4> utf8_bytes(uint32_t c, int& length) {
  const auto byte = [](uint32_t value) { return static_cast<uint8_t>(value); };
  const auto tail = [&](int shift) { return byte(0x80 | (c >> shift & 0x3F)); };
  if (c <= kLastOfLength[0]) {
    length = 1;
    return {byte(c), 0, 0, 0};
  }
  if (c <= kLastOfLength[1]) {
    length = 2;
    return {byte(0xC0 | c >> 6), tail(0), 0, 0};
  }
  if (c <= kLastOfLength[2]) {
    length = 3;
    return {byte(0xE0 | c >> 12), tail(6), tail(0), 0};
  }
  length = 4;
  return {byte(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

void utf8_sequences(const CharSet& set, const Use& use) {
  for (const CharRange& range : set.ranges()) {
    uint32_t low = range.low;
    for (const uint32_t last : kLastOfLength) {
      if (low > last) continue;
      split(low, std::min(range.high, last), use);
      if (range.high <= last) break;
      low = last + 1;
    }
  }
}

}  // namespace inferno::grammar
