// What a benchmark measured, and how it is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace inferno::cli {

// Of several repeats of the same thing.
struct Repeats {
  double median = 0;
  double least = 0;
  double most = 0;

  // Half the distance between the extremes, in percent of the median.
  [[nodiscard]] double spread_percent() const { return median > 0 ? 50 * (most - least) / median : 0; }
};
[[nodiscard]] Repeats summarize(std::vector<double> values);

// One phase of one model, or one op.
struct BenchRow {
  std::string phase;  // prefill, decode
  std::string name;   // of the model or the op
  std::string type;   // of the weights
  std::string kv_type;
  std::string backend;
  int threads = 1;
  int32_t batch = 1;   // sequences in a step
  int32_t depth = 0;   // positions cached before the first token
  int32_t tokens = 0;  // measured, of each sequence
  Repeats tokens_per_second;
  double gb_per_s = 0;                     // weights, cache and activations that had to move, each once
  double gop_per_s = 0;                    // a multiplication and its addition are two
  std::optional<double> percent_of_limit;  // empty: this machine's limit is not known for the backend
  std::optional<double> microseconds;      // of an op
};

// One line for every row, as a Markdown table, a JSON array of objects, or comma-separated values.
[[nodiscard]] std::string format_rows(const std::vector<BenchRow>& rows, const std::string& format);
// Bars of tokens per second with their share of the limit, one panel per phase.
[[nodiscard]] std::string plot_rows(const std::vector<BenchRow>& rows, const std::string& title);

}  // namespace inferno::cli
