#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace inferno {
namespace {

std::optional<uint64_t> read_number(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // "max": no limit
}

std::optional<uint64_t> system_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> available_memory() {
  std::optional<uint64_t> available = system_memory();
  const std::optional<uint64_t> most = read_number("/sys/fs/cgroup/memory.max");
  const std::optional<uint64_t> used = read_number("/sys/fs/cgroup/memory.current");
  if (most && used) {
    const uint64_t left = *most > *used ? *most - *used : 0;
    available = available ? std::min(*available, left) : left;
  }
  return available;
}

}  // namespace inferno
