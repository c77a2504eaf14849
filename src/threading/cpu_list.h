// CPU numbers as people write them: "0-3,8,10-12".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inferno {

// In the order written, repeats included. Anything else is a usage Error that begins with `what`.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text, std::string_view what);
// Ascending numbers, runs joined.
[[nodiscard]] std::string format_cpu_list(std::vector<int> cpus);

}  // namespace inferno
