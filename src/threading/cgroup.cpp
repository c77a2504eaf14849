#include "threading/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace inferno {

namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> quota_of(std::string_view quota, std::string_view period) {
  const std::optional<int64_t> micros = parse_int(trim(quota));
  const std::optional<int64_t> per = parse_int(trim(period));
  if (!micros || !per || *micros <= 0 || *per <= 0) return std::nullopt;  // "max" and -1 mean no limit
  return static_cast<double>(*micros) / static_cast<double>(*per);
}

// Version 2: one file, "QUOTA PERIOD".
std::optional<double> quota_v2(const std::string& folder) {
  const std::optional<std::string> line = first_line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const size_t space = line->find(' ');
  if (space == std::string::npos) return std::nullopt;
  return quota_of(std::string_view(*line).substr(0, space), std::string_view(*line).substr(space + 1));
}

std::optional<double> quota_v1(const std::string& folder) {
  const std::optional<std::string> quota = first_line(folder + "/cpu.cfs_quota_us");
  const std::optional<std::string> period = first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return quota_of(*quota, *period);
}

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
  bool has_cpu = false;  // version 1: has the cpu controller
};

// Lines of mountinfo: id parent device root point options [optional ...] - type source super_options.
std::vector<Mount> cgroup_mounts(const std::string& root) {
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
      mount.has_cpu = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
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

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> smallest;
  const std::vector<Mount> mounts = cgroup_mounts(root);
  std::ifstream file(root + "/proc/self/cgroup");
  // Lines: number:controllers:path, with no controllers for version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const bool version_2 = controllers.empty();
    const bool has_cpu = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (!version_2 && !has_cpu) continue;
    for (const Mount& mount : mounts) {
      if (mount.version_2 != version_2 || (!version_2 && !mount.has_cpu)) continue;
      // The group and all its parents: each may have a quota of its own.
      std::string path = path_below(mount, line.substr(second + 1));
      for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        const std::string folder = fmt::format("{}{}{}", root, mount.point, path);
        const std::optional<double> quota = version_2 ? quota_v2(folder) : quota_v1(folder);
        if (quota && (!smallest || *quota < *smallest)) smallest = quota;
        if (path.empty()) break;
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
      }
    }
  }
  return smallest;
}

}  // namespace inferno
