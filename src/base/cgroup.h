// Linux control groups: the folders whose files limit this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inferno {

struct CgroupFolder {
  std::string path;
  bool version_2 = false;
};

// This process's groups and all their parents, innermost first, in every hierarchy that has the controller ("cpu",
// "memory"); version 2 has all of them in one. Empty where there are none. `root` is prepended to /proc and /sys, so
// that a test can describe another machine.
[[nodiscard]] std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root);

}  // namespace inferno
