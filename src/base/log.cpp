#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/standard_streams.h"

namespace inferno {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info", "warn", "error", "off"};

std::optional<std::string_view> wanted_level() {
  const char* wanted = std::getenv("INFERNO_LOG");
  if (wanted == nullptr || wanted[0] == '\0') return std::nullopt;
  return wanted;
}

std::optional<LogLevel> level_from_environment() {
  const auto* const found = std::ranges::find(kLevelNames, wanted_level().value_or(""));
  if (found == kLevelNames.end()) return std::nullopt;
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

struct State {
  State() {
    if (const std::optional<LogLevel> wanted = level_from_environment()) {
      level = *wanted;
      sink = std::make_shared<const LogSink>(log_to_stderr);
    }
  }
  std::atomic<LogLevel> level{LogLevel::warn};
  std::mutex mutex;  // of sink
  std::shared_ptr<const LogSink> sink;
};

State& state() {
  static State instance;
  return instance;
}

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

void set_log_sink(LogSink sink) {
  auto fresh = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::scoped_lock lock(state().mutex);
  state().sink = std::move(fresh);
}

void log_to_stderr(LogLevel level, std::string_view text) {
  if (level == LogLevel::trace) {
    print_stderr("{}\n", text);
  } else {
    logger().log(static_cast<spdlog::level::level_enum>(level), text);
  }
}

void check_log_environment() {
  const std::optional<std::string_view> wanted = wanted_level();
  if (wanted && !level_from_environment()) {
    fail_usage("INFERNO_LOG=\"{}\" is not a log level (known: trace, debug, info, warn, error, off)", *wanted);
  }
}

void set_log_level(LogLevel level) {
  state().level.store(level, std::memory_order_relaxed);
}
LogLevel log_level() {
  return state().level.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view text) {
  std::shared_ptr<const LogSink> sink;
  {
    const std::scoped_lock lock(state().mutex);
    sink = state().sink;
  }
  // Called without the lock, so that a sink may itself log or be replaced.
  if (sink) (*sink)(level, text);
}

}  // namespace inferno
