// Names of CPUs as people know them.
#include <fmt/format.h>

#include <array>
#include <sstream>

#include "base/platform.h"
#include "base/text.h"

namespace inferno::platform {
namespace {

struct ArmCore {
  std::string_view implementer, part, name;
};
// Linux names Arm's cores by numbers alone (MIDR_EL1).
constexpr std::array<ArmCore, 29> kArmCores = {{
    {"0x41", "0xd03", "Arm Cortex-A53"},  {"0x41", "0xd05", "Arm Cortex-A55"},  {"0x41", "0xd07", "Arm Cortex-A57"},
    {"0x41", "0xd08", "Arm Cortex-A72"},  {"0x41", "0xd09", "Arm Cortex-A73"},  {"0x41", "0xd0a", "Arm Cortex-A75"},
    {"0x41", "0xd0b", "Arm Cortex-A76"},  {"0x41", "0xd0c", "Arm Neoverse N1"}, {"0x41", "0xd0d", "Arm Cortex-A77"},
    {"0x41", "0xd40", "Arm Neoverse V1"}, {"0x41", "0xd41", "Arm Cortex-A78"},  {"0x41", "0xd42", "Arm Cortex-A78AE"},
    {"0x41", "0xd44", "Arm Cortex-X1"},   {"0x41", "0xd46", "Arm Cortex-A510"}, {"0x41", "0xd47", "Arm Cortex-A710"},
    {"0x41", "0xd48", "Arm Cortex-X2"},   {"0x41", "0xd49", "Arm Neoverse N2"}, {"0x41", "0xd4d", "Arm Cortex-A715"},
    {"0x41", "0xd4e", "Arm Cortex-X3"},   {"0x41", "0xd4f", "Arm Neoverse V2"}, {"0x41", "0xd80", "Arm Cortex-A520"},
    {"0x41", "0xd81", "Arm Cortex-A720"}, {"0x41", "0xd82", "Arm Cortex-X4"},   {"0x41", "0xd83", "Arm Neoverse V3AE"},
    {"0x41", "0xd84", "Arm Neoverse V3"}, {"0x41", "0xd8e", "Arm Neoverse N3"}, {"0xc0", "0xac3", "AmpereOne"},
    {"0xc0", "0xac4", "AmpereOne A"},     {"0x46", "0x001", "Fujitsu A64FX"},
}};

}  // namespace

std::string cpu_name_in(const std::string& cpuinfo) {
  std::string model, implementer, part;
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() && !(model + part).empty()) break;  // the name of the first CPU
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = trim(std::string_view(line).substr(0, colon));
    const std::string value(trim(std::string_view(line).substr(colon + 1)));
    if (key == "model name") model = value;
    if (key == "CPU implementer") implementer = value;
    if (key == "CPU part") part = value;
  }
  if (!model.empty()) return model;
  for (const ArmCore& core : kArmCores) {
    if (core.implementer == implementer && core.part == part) return std::string(core.name);
  }
  return part.empty() ? "" : fmt::format("implementer {} part {}", implementer, part);
}

}  // namespace inferno::platform
