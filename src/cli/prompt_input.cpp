#include "cli/prompt_input.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "hub/hub_name.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void ModelAndPrompt::add_to(CLI::App& command) {
  first_given_ =
      command.add_option("model_or_prompt", first,
                         "a .gguf file or a Hugging Face folder; otherwise it is the prompt of the built-in model");
  second_given_ = command.add_option("prompt_text", second, "the text to begin with");
  command.add_option("-m,--model", model,
                     "a .gguf file or a Hugging Face folder; what follows without an option is then the prompt");
  command.add_option("-p,--prompt", prompt, "the text to begin with, whatever it looks like");
}

std::pair<std::string, std::optional<std::string>> ModelAndPrompt::resolve() const {
  const bool has_first = first_given_->count() > 0;
  const bool has_second = second_given_->count() > 0;
  if (!model.empty() && has_second)
    fail_usage("\"{}\" is one argument too many; quote a prompt of several words", printable(second));
  if (prompt && (has_second || (has_first && !model.empty()))) fail_usage("give the prompt once");
  std::string named = model;
  std::optional<std::string> text = prompt;
  if (named.empty() && has_first && (has_second || prompt || looks_like_model(first))) {
    named = first;
    if (has_second) text = second;
    if (named.empty()) fail_usage("the name of the model is empty");
  } else if (has_first) {
    text = first;
  }
  if (!named.empty() && !std::filesystem::exists(named) && !hub::parse_name(named)) {
    fail(
        "there is no file \"{}\": a model is a .gguf file, a folder or ORG/NAME, and a prompt that looks like a name "
        "goes after "
        "-p",
        printable(named));
  }
  return {named, text};
}

std::string_view without_file_marks(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

std::string read_prompt(const std::string& path) {
  return std::string(without_file_marks(read_text(path, kMaxPromptBytes)));
}

bool has_piped_input() {
  struct stat status{};
  return ::fstat(STDIN_FILENO, &status) == 0 && !S_ISCHR(status.st_mode);
}

}  // namespace inferno::cli
