// Chat formats for model files that ship no template, written as templates of our own (known/NAME.jinja).
#pragma once

#include <string>
#include <string_view>

namespace inferno {

// The source; empty for a name that is not known.
[[nodiscard]] std::string_view find_known_template(std::string_view name);
// "alpaca, chatml, ..."
[[nodiscard]] std::string known_template_names();
// The nearest known name to a mistyped one; empty when none is close.
[[nodiscard]] std::string_view nearest_known_template(std::string_view name);

}  // namespace inferno
