// How what a benchmark measured is shown.
#pragma once

#include <string>
#include <vector>

#include "inferno/tools.h"

namespace inferno::cli {

// One line for every row, as a Markdown table, a JSON array of objects, or comma-separated values.
[[nodiscard]] std::string format_rows(const std::vector<BenchRow>& rows, const std::string& format);
// Bars of tokens per second with their share of the limit, one panel per phase.
[[nodiscard]] std::string plot_rows(const std::vector<BenchRow>& rows, const std::string& title);

}  // namespace inferno::cli
