// The CPU time a container grants this process, read from Linux control groups.
#pragma once

#include <optional>
#include <string>

namespace inferno {

// CPUs' worth of time per period (2.5 = two and a half CPUs): the smallest quota among this process's control groups
// and all their parents, version 1 or 2; nullopt = no limit, or not Linux. `root` is prepended to /proc and /sys, so
// that a test can describe another machine. Missing or invalid files mean no limit.
[[nodiscard]] std::optional<double> cgroup_cpu_quota(const std::string& root = "");

}  // namespace inferno
