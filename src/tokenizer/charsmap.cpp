#include "tokenizer/charsmap.h"

#include "base/error.h"

namespace inferno {

namespace {

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The fields of a unit.
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FFU;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200U) >> 6);
}
bool has_value(uint32_t unit) {
  return (unit & 0x100U) != 0;
}

}  // namespace

Charsmap::Charsmap(std::string_view compiled) {
  if (compiled.empty()) return;
  const uint32_t bytes = compiled.size() < 4 ? 0 : read_u32(compiled);
  if (compiled.size() < 4 || bytes > compiled.size() - 4 || bytes % 4 != 0 || compiled.back() != '\0') {
    fail("tokenizer.ggml.precompiled_charsmap of {} bytes is damaged", compiled.size());
  }
  for (size_t i = 4; i < 4 + size_t{bytes}; i += 4) units_.push_back(read_u32(compiled.substr(i)));
  strings_ = compiled.substr(4 + size_t{bytes});
}

Charsmap::Match Charsmap::find(std::string_view text) const {
  Match best;
  if (units_.empty()) return best;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit) || node >= units_.size()) continue;
    const uint32_t begin = value_of(units_[node]);
    if (begin < strings_.size()) best = {i + 1, std::string_view(strings_.data() + begin)};
  }
  return best;
}

}  // namespace inferno
