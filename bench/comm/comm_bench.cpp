// mpirun -np 2 ... comm_bench: how long a sum over ranks takes, by its length, and the two numbers by which `inferno
// plan` describes a network (docs/scale.md): the latency of a small message, and the rate of large ones each way.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "comm/world.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

// Of one batch; more of them, and the median, where the machine has other work.
constexpr double kBatchUs = 2e4;
constexpr int kBatches = 11;

// Microseconds of a sum of so many numbers, each right after the last: the median of batches.
double sum_us(Communicator& ranks, size_t count) {
  std::vector<float> x(count, 1.0F);
  std::vector<std::byte> scratch(Communicator::all_reduce_bytes(count, ranks.size()));
  const auto batch_us = [&](int sums) {
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < sums; ++i) ranks.all_reduce(x, scratch);
    ranks.check();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / sums;
  };
  // The leader says how many a batch is: all ranks must sum as often.
  auto sums = static_cast<int32_t>(std::clamp(kBatchUs / batch_us(4), 1.0, 1e4));
  ranks.broadcast(std::as_writable_bytes(std::span(&sums, 1)));
  std::vector<double> times;
  for (int b = 0; b < kBatches; ++b) times.push_back(batch_us(sums));
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void measure(Communicator& ranks) {
  if (ranks.is_leader()) fmt::print("| numbers | us | Gbit/s each way |\n|---|---|---|\n");
  for (size_t count = 1; count <= size_t{1} << 20; count *= count < 1024 ? 32 : 4) {
    const double us = sum_us(ranks, count);
    // What every rank sends: its part to each other one, or segments of it (Communicator::all_reduce).
    const double others = ranks.size() - 1;
    const bool segments = ranks.size() > 2 && count >= Communicator::kLeastSegmented;
    const double sent = static_cast<double>(count * sizeof(float)) * (segments ? 2 * others / ranks.size() : others);
    if (ranks.is_leader()) fmt::print("| {} | {:.1f} | {:.2f} |\n", count, us, sent * 8 / us / 1e3);
  }
}

}  // namespace
}  // namespace inferno

int main() {
  try {
    inferno::join_world();
    inferno::Communicator& ranks = inferno::world();
    if (ranks.size() == 1) inferno::fail("start two ranks or more: mpirun -np 2 comm_bench");
    inferno::measure(ranks);
    ranks.transport()->close();
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "comm_bench: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
