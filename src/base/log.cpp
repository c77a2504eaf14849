#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace inferno {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info", "warn", "error", "off"};
std::atomic<LogLevel> current_level{LogLevel::warn};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    // Colour only on a terminal and never with NO_COLOR (set to any non-empty value).
    const char* no_color = std::getenv("NO_COLOR");
    const bool plain = no_color != nullptr && no_color[0] != '\0';
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(plain ? spdlog::color_mode::never
                                                                            : spdlog::color_mode::automatic);
    auto created = std::make_shared<spdlog::logger>("inferno", std::move(sink));
    created->set_pattern("%^%l%$: %v");
    created->set_level(spdlog::level::trace);
    return created;
  }();
  return *instance;
}

}  // namespace

void init_logging() {
  const char* wanted = std::getenv("INFERNO_LOG");
  if (wanted == nullptr || wanted[0] == '\0') return;
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == wanted) {
      set_log_level(static_cast<LogLevel>(i));
      return;
    }
  }
  fail_usage("INFERNO_LOG=\"{}\" is not a log level (known: trace, debug, info, warn, error, off)", wanted);
}

void set_log_level(LogLevel level) {
  current_level.store(level, std::memory_order_relaxed);
}
LogLevel log_level() {
  return current_level.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view text) {
  logger().log(static_cast<spdlog::level::level_enum>(level), text);
}

}  // namespace inferno
