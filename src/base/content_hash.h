// A fingerprint of bytes, 128 bits: tells whether a file is what it was. Fast, and no protection against somebody who
// makes two contents with one fingerprint on purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace inferno {

struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

class ContentHash {
 public:
  // One call or several make no difference.
  void add(std::span<const std::byte> bytes);
  // With its length: two texts are not one.
  void add(std::string_view text);
  void add(uint64_t value);
  [[nodiscard]] Fingerprint value() const;

 private:
  void absorb(const std::byte* block);

  static constexpr size_t kBlock = 32;
  std::array<uint64_t, 4> lanes_ = {0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL, 0xa4093822299f31d0ULL,
                                    0x082efa98ec4e6c89ULL};
  std::array<std::byte, kBlock> rest_{};  // of a block that is not full
  size_t rest_bytes_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace inferno
