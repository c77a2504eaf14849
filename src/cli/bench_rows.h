// How what a benchmark measured is shown.
#pragma once

#include <string>
#include <vector>

#include "inferno/tools.h"

namespace inferno::cli {

// What figures need to be understood later.
struct BenchContext {
  std::vector<std::string> files;  // of each row
  std::string version, cpu, date, settings;
  double load = 0;  // of the machine by others before it began: the 1-minute average
};

// One line for every row, as a Markdown table, a JSON array of objects, or comma-separated values; the latter two with
// the context in every row.
[[nodiscard]] std::string format_rows(const std::vector<BenchRow>& rows, const BenchContext& context,
                                      const std::string& format);
// Bars of tokens per second with their share of the limit, one panel per phase.
[[nodiscard]] std::string plot_rows(const std::vector<BenchRow>& rows, const std::string& title);

}  // namespace inferno::cli
