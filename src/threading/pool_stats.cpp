#include "threading/pool_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace inferno {

void ThreadStats::reset() {
  for (Op& row : ops_) {
    for (Counter* counter : {&row.dispatches, &row.wakes, &row.wake_ticks, &row.wake_max, &row.finish_ticks,
                             &row.span_ticks, &row.barriers, &row.barrier_ticks}) {
      counter->store(0, std::memory_order_relaxed);
    }
  }
}

PoolStats sum_stats(std::span<const ThreadStats> threads, double ticks_per_ns) {
  PoolStats stats{.threads = static_cast<int>(threads.size()), .ops = {}};
  const auto mean_ns = [&](uint64_t ticks, uint64_t count) {
    return count == 0 ? 0.0 : static_cast<double>(ticks) / ticks_per_ns / static_cast<double>(count);
  };
  for (size_t op = 0; op < kPoolOps; ++op) {
    uint64_t wake_ticks = 0;
    uint64_t wake_max = 0;
    uint64_t finish_ticks = 0;
    uint64_t span_ticks = 0;
    uint64_t barrier_ticks = 0;
    PoolOpStats row{.op = static_cast<int>(op)};
    for (const ThreadStats& thread : threads) {
      const ThreadStats::Op& part = thread.ops_[op];
      const auto value = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
      row.dispatches += value(part.dispatches);
      row.wakes += value(part.wakes);
      row.barriers += value(part.barriers);
      wake_ticks += value(part.wake_ticks);
      wake_max = std::max(wake_max, value(part.wake_max));
      finish_ticks += value(part.finish_ticks);
      span_ticks += value(part.span_ticks);
      barrier_ticks += value(part.barrier_ticks);
    }
    if (row.dispatches == 0 && row.barriers == 0) continue;
    row.wake_ns = mean_ns(wake_ticks, row.wakes);
    row.wake_max_ns = mean_ns(wake_max, 1);
    row.barrier_wait_ns = mean_ns(barrier_ticks, row.barriers);
    // A dispatch may be under way while this is read, so finish can be ahead of span.
    if (span_ticks > finish_ticks) {
      row.imbalance = static_cast<double>(span_ticks - finish_ticks) / static_cast<double>(span_ticks);
    }
    stats.ops.push_back(row);
  }
  return stats;
}

std::string format_pool_stats(const PoolStats& stats, std::span<const std::string_view> names) {
  std::string text = fmt::format("thread pool: {} thread{}\n", stats.threads, stats.threads == 1 ? "" : "s");
  if (stats.ops.empty()) return text + "  no dispatch yet\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out, "  {:<16} {:>12} {:>12} {:>12} {:>12} {:>15} {:>10}\n", "op", "dispatches", "wake us", "worst us",
                 "barriers", "barrier wait us", "imbalance");
  for (const PoolOpStats& row : stats.ops) {
    const auto index = static_cast<size_t>(row.op);
    const std::string name = index < names.size() ? std::string(names[index]) : fmt::format("op {}", row.op);
    fmt::format_to(out, "  {:<16} {:>12} {:>12.3f} {:>12.1f} {:>12} {:>15.3f} {:>8.1f} %\n", name, row.dispatches,
                   row.wake_ns * 1e-3, row.wake_max_ns * 1e-3, row.barriers, row.barrier_wait_ns * 1e-3,
                   row.imbalance * 100);
  }
  return text;
}

}  // namespace inferno
