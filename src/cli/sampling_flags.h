// The options that decide how tokens are drawn, and what the others mean when some of them are given.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "inferno/sampling.h"

namespace inferno::cli {

struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;

  void add_to(CLI::App& command);
  // Whether one is given that means nothing to a greedy choice.
  [[nodiscard]] bool asks_for_draws() const { return top_k || top_p || min_p || seed; }
  // What was given over what is there; the seed is random unless given.
  [[nodiscard]] SamplingSettings over(SamplingSettings base) const;
};

// Short enough to be typed again.
[[nodiscard]] uint64_t random_seed();
// "temp 0.7, top-p 0.95, seed 42"; "greedy" where there is nothing to draw.
[[nodiscard]] std::string describe(const SamplingSettings& sampling);

}  // namespace inferno::cli
