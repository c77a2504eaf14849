#include "threading/cgroup.h"

#include <fstream>
#include <string_view>

#include "base/cgroup.h"
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

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> smallest;
  for (const CgroupFolder& folder : cgroup_folders("cpu", root)) {
    const std::optional<double> quota = folder.version_2 ? quota_v2(folder.path) : quota_v1(folder.path);
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
  }
  return smallest;
}

}  // namespace inferno
