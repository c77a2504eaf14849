// The one logging call; where messages go is said in inferno/log.h. Everything here may be called from any thread.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "inferno/log.h"

namespace inferno {

// "warning: text" on stderr, in colour on a terminal; messages of level trace have no prefix. spdlog does the work and
// is seen only by log.cpp, so that including this header stays cheap.
void log_to_stderr(LogLevel level, std::string_view text);

// An Error that lists the levels when INFERNO_LOG names none of them. A program calls it at its start; in one that does
// not, such a value counts as no value.
void check_log_environment();

void set_log_level(LogLevel level);
[[nodiscard]] LogLevel log_level();
void log_message(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace inferno
