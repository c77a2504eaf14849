// The tiny models of families that tests of several backends run.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace inferno::testing {

// Folders of data/families that inferno runs.
inline constexpr const char* kFamilies[] = {
    "deepseek2",   "gemma2",    "gemma3",      "gemma4",   "gemma4e",       "gemma4moe", "glm4moe",
    "glm4moelite", "gptoss",    "gptoss_real", "granite",  "granitehybrid", "laguna",    "lfm2",
    "lfm2moe",     "minimaxm2", "ministral3",  "mistrald", "mixtrald",      "nemotronh", "olmo3",
    "phi3",        "qwen35",    "qwen35moe",   "qwen3moe", "qwen3next",     "seedoss",   "smollm3"};

// The ids of every logits.f32.
inline const std::vector<int32_t> kFamilyIds = {
    285, 51, 71, 68, 262, 283, 271, 64,  82,  220, 66,  64, 75,  76,  13,  1,  40,  83, 6,   82, 220, 16, 23,
    20,  16, 11, 1,  262, 278, 258, 220, 281, 83,  279, 26, 198, 220, 258, 77, 270, 68, 220, 75, 78,  78, 74};

inline double deviation(std::span<const float> values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
}

// Those whose folders are here; the first alone, which says what is missing, where there is none.
inline std::vector<std::string> families_here() {
  std::vector<std::string> names;
  for (const char* name : kFamilies) {
    if (!find_data(std::string("families/") + name).empty()) names.emplace_back(name);
  }
  if (names.empty()) names.emplace_back(kFamilies[0]);
  return names;
}

}  // namespace inferno::testing
