#include "base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "base/cgroup.h"

namespace inferno {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // "max": no limit
}

// The number after `key` in a file of such lines.
std::optional<uint64_t> read_entry(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  std::string rest;
  while (file >> word >> value) {
    if (word == key) return value;
    std::getline(file, rest);
  }
  return std::nullopt;
}

// What a group may still take; nothing where it has no limit.
std::optional<uint64_t> left_in(const CgroupFolder& group) {
  const bool v2 = group.version_2;
  const auto limit = read_number(group.path + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(group.path + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  // Files that were read once count as used until somebody needs the memory.
  const uint64_t droppable =
      read_entry(group.path + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const uint64_t needed = *used - std::min(*used, droppable);
  return *limit - std::min(*limit, needed);
}

}  // namespace

std::optional<uint64_t> available_memory(const std::string& root) {
  std::optional<uint64_t> available = read_entry(root + "/proc/meminfo", "MemAvailable:");
  if (available) *available *= 1024;
  for (const CgroupFolder& group : cgroup_folders("memory", root)) {
    const std::optional<uint64_t> left = left_in(group);
    if (left && (!available || *left < *available)) available = left;
  }
  return available;
}

uint64_t free_swap(const std::string& root) {
  return read_entry(root + "/proc/meminfo", "SwapFree:").value_or(0) * 1024;
}

uint64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace inferno
