// Checked 64-bit arithmetic for sizes that come from outside. Nothing here wraps silently.
#pragma once

#include <cstdint>
#include <optional>

namespace inferno {

[[nodiscard]] inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

[[nodiscard]] inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// value rounded up to a multiple of step (step > 0).
[[nodiscard]] inline std::optional<uint64_t> checked_round_up(uint64_t value, uint64_t step) {
  const uint64_t rest = value % step;
  return rest == 0 ? value : checked_add(value, step - rest);
}

[[nodiscard]] constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
[[nodiscard]] constexpr int64_t round_up(int64_t a, int64_t step) {
  return ceil_div(a, step) * step;
}

}  // namespace inferno
