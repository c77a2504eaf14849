// Literals of numbers, as Python writes them: 1_000, 0xFF, 0b1, 0o7, 1.5, 2e10.
#pragma once

#include <cstdint>
#include <string_view>

namespace inferno::jinja {

struct NumberMatch {
  size_t size = 0;  // bytes; 0: no number here
  bool is_float = false;
  bool too_large = false;
  int64_t integer = 0;
  double floating = 0;
};

[[nodiscard]] NumberMatch match_number(std::string_view source, size_t at);

}  // namespace inferno::jinja
