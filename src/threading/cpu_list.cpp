#include "threading/cpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {
// More CPUs than any machine has; keeps a typo from becoming a list of billions.
constexpr int64_t kHighestCpu = 65535;
}  // namespace

std::vector<int> parse_cpu_list(std::string_view text, std::string_view what) {
  const auto bad = [&]() { fail_usage("{}: '{}' is not a CPU list; write for example 0-3,8", what, printable(text)); };
  std::vector<int> cpus;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = trim(rest.substr(0, comma));
    const size_t dash = part.find('-', 1);
    const std::optional<int64_t> first = parse_int(part.substr(0, dash));
    const std::optional<int64_t> last = dash == std::string_view::npos ? first : parse_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) bad();
    if (*last > kHighestCpu) fail_usage("{}: CPU {} is out of range", what, *last);
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    if (comma == std::string_view::npos) return cpus;
    rest = rest.substr(comma + 1);
  }
}

std::string format_cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] <= cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += cpus[begin] == cpus[end - 1] ? fmt::format("{}", cpus[begin])
                                         : fmt::format("{}-{}", cpus[begin], cpus[end - 1]);
    begin = end;
  }
  return text.empty() ? "none" : text;
}

}  // namespace inferno
