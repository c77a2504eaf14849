#include "backend/tracing.h"

#include <fmt/core.h>

#include <cctype>
#include <chrono>

#include "backend/op_fields.h"
#include "backend/op_print.h"
#include "base/log.h"

namespace inferno {

TracingBackend::TracingBackend(std::unique_ptr<Backend> inner, Sink sink)
    : BackendDecorator(std::move(inner)), sink_(std::move(sink)) {
  if (!sink_) sink_ = [](const std::string& line) { log_message(LogLevel::trace, line); };
  for (const char c : name()) label_.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
}

void TracingBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  if (!planning_) ++step_;
  layer_ = kNoLayer;
  inner().begin_step(mode);
}

template <typename Args>
void TracingBackend::trace(const Args& args) {
  using Clock = std::chrono::steady_clock;
  if (planning_) {
    OpOf<Args>::call(inner(), args);
    return;
  }
  struct Level {
    explicit Level(int& depth) : depth(depth) { ++depth; }
    ~Level() { --depth; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    int& depth;
  };
  inner().synchronize();
  const auto begin = Clock::now();
  {
    const Level level(depth_);
    OpOf<Args>::call(inner(), args);
    inner().synchronize();
  }
  const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
  OpRecord record;
  record.assign(args);
  layer_ = layer_of(record).value_or(layer_);
  std::string line;
  for (int i = 0; i < depth_; ++i) line += "-> ";
  line += fmt::format("[{}] [{}] ({}) {} step {}", label_, op_name(OpOf<Args>::kId), format_args(record),
                      format_time(time.count()), step_);
  if (layer_ != kNoLayer) line += fmt::format(" layer {}", layer_);
  sink_(line);
}

#define OP(name, Args)                          \
  void TracingBackend::name(const Args& args) { \
    trace(args);                                \
  }
#include "backend/op_list.inc"

}  // namespace inferno
