// Messages of the library name its options in backquotes (base/error.h); a user of the command line knows the flags.
#pragma once

#include <string>
#include <string_view>

namespace inferno::cli {

// The message with every `option` that has a flag replaced by it: "`context` 9 is ..." becomes "--ctx 9 is ...".
[[nodiscard]] std::string with_flags(std::string_view message);

}  // namespace inferno::cli
