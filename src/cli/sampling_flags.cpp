#include "cli/sampling_flags.h"

#include <fmt/core.h>

#include <random>

namespace inferno::cli {

void SamplingFlags::add_to(CLI::App& command) {
  command.add_option("--temp", temperature, "temperature; 0 always takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--top-k", top_k, "draw from the k likeliest tokens (0: all)")->check(CLI::Range(0, INT32_MAX));
  command.add_option("--top-p", top_p, "draw from the likeliest tokens that hold this probability")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--min-p", min_p, "drop tokens below this share of the likeliest")->check(CLI::Range(0.0, 1.0));
  command.add_option("--repeat-penalty", repeat_penalty, "above 1: make the latest 64 tokens less likely")
      ->check(CLI::Range(0.01, 100.0));
  command.add_option("--seed,-s", seed, "the same seed gives the same text (default: random, and shown)");
}

SamplingSettings SamplingFlags::over(SamplingSettings base) const {
  base.temperature = temperature.value_or(base.temperature);
  base.top_k = top_k.value_or(base.top_k);
  base.top_p = top_p.value_or(base.top_p);
  base.min_p = min_p.value_or(base.min_p);
  base.repeat_penalty = repeat_penalty.value_or(base.repeat_penalty);
  base.seed = seed ? *seed : random_seed();
  return base;
}

uint64_t random_seed() {
  return std::random_device{}();
}

std::string describe(const SamplingSettings& sampling) {
  std::string text = sampling.temperature > 0 ? fmt::format("temp {:g}", sampling.temperature) : "greedy";
  if (sampling.temperature > 0) {
    if (sampling.top_k > 0) text += fmt::format(", top-k {}", sampling.top_k);
    if (sampling.top_p < 1) text += fmt::format(", top-p {:g}", sampling.top_p);
    if (sampling.min_p > 0) text += fmt::format(", min-p {:g}", sampling.min_p);
  }
  if (sampling.repeat_penalty != 1) text += fmt::format(", repeat-penalty {:g}", sampling.repeat_penalty);
  if (sampling.temperature > 0) text += fmt::format(", seed {}", sampling.seed);
  return text;
}

}  // namespace inferno::cli
