// The one logging call. Messages go to stderr; INFERNO_LOG=trace|debug|info|warn|error|off sets the level (default
// warn). spdlog does the work and is seen only by log.cpp, so that including this header stays cheap.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace inferno {

enum class LogLevel { trace, debug, info, warn, error, off };

// Reads INFERNO_LOG once; an unknown level is an Error that lists the known ones.
void init_logging();
void set_log_level(LogLevel level);
[[nodiscard]] LogLevel log_level();
void log_message(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace inferno
