// The one logging call. A library prints nothing by itself: messages go to the sink that the program installs, or to
// stderr when INFERNO_LOG=trace|debug|info|warn|error|off asks for them, and nowhere otherwise. The level is warn
// unless INFERNO_LOG says more. Everything here may be called from any thread.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace inferno {

enum class LogLevel { trace, debug, info, warn, error, off };

// Called with one message at a time, from the thread that logs it.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

// Replaces the sink; an empty one is silence.
void set_log_sink(LogSink sink);
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
