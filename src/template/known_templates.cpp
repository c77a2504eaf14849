#include "template/known_templates.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/text.h"

namespace inferno {
namespace {

struct KnownTemplate {
  std::string_view name, source;
};
constexpr KnownTemplate kTemplates[] = {
#include "known_templates.inc"  // made by CMakeLists.txt: {"chatml", R"jinja(...)jinja"},
};

}  // namespace

std::string_view find_known_template(std::string_view name) {
  const auto* const found = std::ranges::find(kTemplates, name, &KnownTemplate::name);
  return found == std::end(kTemplates) ? std::string_view() : found->source;
}

std::string known_template_names() {
  std::string names;
  for (const KnownTemplate& known : kTemplates) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

std::string_view nearest_known_template(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnownTemplate& known : kTemplates) names.push_back(known.name);
  return nearest(name, names);
}

}  // namespace inferno
