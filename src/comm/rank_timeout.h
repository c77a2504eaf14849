// How long a rank may be silent in a step before it counts as gone: INFERNO_RANK_TIMEOUT, in seconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace inferno {

[[nodiscard]] inline std::chrono::seconds rank_timeout() {
  constexpr long kDefault = 60;
  constexpr long kMost = 86'400;
  const char* text = std::getenv("INFERNO_RANK_TIMEOUT");
  const long seconds = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return std::chrono::seconds(seconds > 0 ? std::min(seconds, kMost) : kDefault);
}

}  // namespace inferno
