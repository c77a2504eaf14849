// How many threads, and where.
#pragma once

namespace inferno {

// A bound on any pool's width; the protocol's active count has 16 bits.
inline constexpr int kMaxThreads = 1024;

// CPUs this process can use at the same time: its affinity mask, limited by the control group's quota (rounded up).
[[nodiscard]] int available_cpu_count();
// The width of a pool when nobody asks for one.
[[nodiscard]] int default_thread_count();

}  // namespace inferno
