// Names of models on a hub: ORG/NAME, ORG/NAME:TYPE or ORG/NAME:FILE.gguf.
//
// Names and files come from users and from servers, and become paths: only what passes the checks here does.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inferno::hub {

struct ModelName {
  std::string owner;
  std::string name;
  std::string selector;  // a type such as Q4_K_M, or a file of the repository; empty: the usual choice

  [[nodiscard]] std::string repository() const { return owner + "/" + name; }
};

// Nothing when the text has another form; a path such as models/x.gguf, ./a or /a/b is none.
[[nodiscard]] std::optional<ModelName> parse_name(std::string_view text);

// Whether a server's name of a file may become a path below a folder: parts of letters, digits and ._-+ that do not
// begin with a dot, joined by single slashes.
[[nodiscard]] bool is_safe_path(std::string_view path);

// The .gguf files that `selector` means among those of a repository, in order: one, or all parts of a split model. An
// Error that lists what there is when nothing or more than one model fits. An empty selector takes Q4_K_M, else Q8_0,
// else the only model.
[[nodiscard]] std::vector<std::string> select_files(std::span<const std::string> files, const ModelName& name);

// Of "a-00002-of-00003.gguf": how its parts begin, "a", and their number; nothing of a whole file.
struct Part {
  std::string stem;
  int number = 0;
  int count = 0;
};
[[nodiscard]] std::optional<Part> parse_part(std::string_view file);

}  // namespace inferno::hub
