// The options of tokens that are guessed ahead.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace inferno::cli {

struct SpeculationFlags {
  std::string draft;  // a model
  bool lookup = false;
  int32_t max_draft = 15;

  void add_to(CLI::App& command) {
    command.add_flag("--lookup", lookup,
                     "guess tokens from what followed the same words before: the same text, sooner");
    command.add_option("--draft,--model-draft", draft,
                       "a smaller model of the same vocabulary that guesses tokens ahead");
    command.add_option("--draft-max", max_draft, "tokens guessed at a time")
        ->check(CLI::Range(0, 15))
        ->capture_default_str();
  }
  // Of a Request or GenerateOptions.
  template <typename Options>
  void apply(Options& options) const {
    options.lookup = lookup;
    options.max_draft = max_draft;
  }
};

}  // namespace inferno::cli
