#include "cli/chat_template.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "template/known_templates.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

}  // namespace

std::string read_chat_template(const std::string& name_or_file) {
  if (name_or_file.empty() || !find_known_template(name_or_file).empty()) return name_or_file;
  if (!std::filesystem::exists(name_or_file)) {
    const std::string_view meant = nearest_known_template(name_or_file);
    fail_usage("--chat-template: \"{}\" is neither a file nor a known format{} (known: {})", printable(name_or_file),
               meant.empty() ? "" : fmt::format("; did you mean {}?", meant), known_template_names());
  }
  return read_text(name_or_file, kMaxTemplateBytes);
}

FileWithTemplate::FileWithTemplate(const ModelFile& file, const std::string& name_or_text) : file_(file) {
  const std::string_view known = find_known_template(name_or_text);
  source_ = known.empty() ? name_or_text : std::string(known);
}

Vocabulary FileWithTemplate::vocabulary() const {
  Vocabulary result = file_.vocabulary();
  result.chat_template = source_;
  return result;
}

}  // namespace inferno::cli
