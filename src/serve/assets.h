// Files that are part of the program.
#pragma once

#include <string_view>

namespace inferno::serve {

[[nodiscard]] std::string_view page_html();     // page.html
[[nodiscard]] std::string_view openapi_json();  // openapi.json

}  // namespace inferno::serve
