#include "base/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace inferno {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
  bool version_2 = false;
  bool has_controller = false;  // version 1: the one that is wanted
};

// Lines of mountinfo: id parent device root point options [optional ...] - type source super_options.
std::vector<Mount> cgroup_mounts(std::string_view controller, const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> before = split(line.substr(0, dash), ' ');
    const std::vector<std::string> after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.empty()) continue;
    Mount mount{.root = before[3], .point = before[4]};
    if (after[0] == "cgroup2") {
      mount.version_2 = true;
    } else if (after[0] == "cgroup" && after.size() >= 3) {
      const std::vector<std::string> controllers = split(after[2], ',');
      mount.has_controller = std::ranges::find(controllers, controller) != controllers.end();
    } else {
      continue;
    }
    mounts.push_back(mount);
  }
  return mounts;
}

// The path of `group` (a path in the hierarchy) below the mount; inside a container the mount shows only the
// container's own part, and a path outside it means the top of what is mounted.
std::string path_below(const Mount& mount, const std::string& group) {
  if (mount.root == "/") return group;
  if (group.compare(0, mount.root.size(), mount.root) == 0) return group.substr(mount.root.size());
  return "/";
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root) {
  std::vector<CgroupFolder> folders;
  const std::vector<Mount> mounts = cgroup_mounts(controller, root);
  std::ifstream file(root + "/proc/self/cgroup");
  // Lines: number:controllers:path, with no controllers for version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const bool version_2 = controllers.empty();
    if (!version_2 && std::ranges::find(controllers, controller) == controllers.end()) continue;
    for (const Mount& mount : mounts) {
      if (mount.version_2 != version_2 || (!version_2 && !mount.has_controller)) continue;
      std::string path = path_below(mount, line.substr(second + 1));
      for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        folders.push_back({fmt::format("{}{}{}", root, mount.point, path), version_2});
        if (path.empty()) break;
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
      }
    }
  }
  return folders;
}

}  // namespace inferno
