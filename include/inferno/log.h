// Where messages go. The library prints nothing by itself: messages go to the sink that the program installs, or to
// stderr when INFERNO_LOG=trace|debug|info|warn|error|off asks for them, and nowhere otherwise.
#pragma once

#include <functional>
#include <string_view>

#include "inferno/error.h"

namespace inferno {

enum class LogLevel { trace, debug, info, warn, error, off };

// Called with one message at a time, from the thread that logs it.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

// One for the whole process; an empty one is silence. The level is warn unless INFERNO_LOG says more. From any thread.
INFERNO_API void set_log_sink(LogSink sink);

}  // namespace inferno
