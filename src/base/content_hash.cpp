#include "base/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace inferno {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64's finalizer
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

// Each step can be undone for a given word: a change of any word changes its lane.
void ContentHash::absorb(const std::byte* block) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, block + i * sizeof(word), sizeof(word));
    lanes_[i] = std::rotl((lanes_[i] ^ word) * 0x9e3779b97f4a7c15ULL, 29);
  }
}

void ContentHash::add(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (rest_bytes_ == 0 && bytes.size() >= kBlock) {
      absorb(bytes.data());
      bytes = bytes.subspan(kBlock);
      continue;
    }
    const size_t taken = std::min(kBlock - rest_bytes_, bytes.size());
    std::memcpy(rest_.data() + rest_bytes_, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    rest_bytes_ += taken;
    if (rest_bytes_ < kBlock) return;
    absorb(rest_.data());
    rest_bytes_ = 0;
  }
}

void ContentHash::add(uint64_t value) {
  add(std::as_bytes(std::span(&value, 1)));
}

void ContentHash::add(std::string_view text) {
  add(uint64_t{text.size()});
  add(std::as_bytes(std::span(text)));
}

Fingerprint ContentHash::value() const {
  ContentHash ended = *this;
  std::fill(ended.rest_.begin() + static_cast<ptrdiff_t>(ended.rest_bytes_), ended.rest_.end(), std::byte{0});
  if (ended.rest_bytes_ > 0) ended.absorb(ended.rest_.data());
  Fingerprint result{.low = bytes_, .high = ~bytes_};
  for (const uint64_t lane : ended.lanes_) {
    result.low = mix(result.low * 0x9e3779b97f4a7c15ULL + lane);
    result.high = mix(result.high * 0xd6e8feb86659fd93ULL + (lane ^ result.low));
  }
  return result;
}

}  // namespace inferno
