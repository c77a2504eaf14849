// Prompts from arguments, files and standard input.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace inferno::cli {

// [MODEL] [PROMPT], --model and --prompt. The built-in model is meant only where no model is named.
struct ModelAndPrompt {
  std::string first, second;  // positional
  std::string model;
  std::optional<std::string> prompt;

  void add_to(CLI::App& command);
  // The model (empty: the built-in one) and the prompt, if one was given. A model that is not there is an Error.
  [[nodiscard]] std::pair<std::string, std::optional<std::string>> resolve() const;

 private:
  CLI::Option* second_given_ = nullptr;
  CLI::Option* first_given_ = nullptr;
};

// The largest text that is read whole.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

// The text of a file, or of standard input for "-", as a person means it: without a byte-order mark and without the
// last line's end.
[[nodiscard]] std::string read_prompt(const std::string& path);
[[nodiscard]] std::string_view without_file_marks(std::string_view text);

// Whether somebody has put a text into standard input: a pipe or a file, not a terminal or /dev/null.
[[nodiscard]] bool has_piped_input();

}  // namespace inferno::cli
