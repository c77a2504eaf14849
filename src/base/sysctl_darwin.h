// Values that macOS publishes by name.
#pragma once

#include <sys/sysctl.h>

#include <cstdint>
#include <optional>
#include <string>

namespace inferno {

// Nothing where this system does not know the name.
[[nodiscard]] inline std::optional<int64_t> sysctl_number(const char* name) {
  // The value has 4 or 8 bytes; the machine is little-endian, so the lower half of a zero is right for both.
  int64_t value = 0;
  size_t bytes = sizeof value;
  if (sysctlbyname(name, &value, &bytes, nullptr, 0) != 0) return std::nullopt;
  return value;
}

[[nodiscard]] inline std::string sysctl_text(const char* name) {
  size_t bytes = 0;
  if (sysctlbyname(name, nullptr, &bytes, nullptr, 0) != 0) return "";
  std::string text(bytes, '\0');
  if (sysctlbyname(name, text.data(), &bytes, nullptr, 0) != 0) return "";
  text.resize(text.find('\0') == std::string::npos ? bytes : text.find('\0'));
  return text;
}

}  // namespace inferno
