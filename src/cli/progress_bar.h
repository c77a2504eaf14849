// Progress on stderr: a bar that redraws itself on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/progress.h"

namespace inferno::cli {

// Work shorter than about half a second draws nothing.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  // Ends the line of work that failed.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // As OnProgress is called; `done` 0 starts again, `done` == `total` ends the line.
  void update(uint64_t done, uint64_t total);

 private:
  void draw(bool last);

  std::string label_;
  uint64_t done_ = 0;
  uint64_t total_ = 1;
  bool terminal_;
  bool drawn_ = false;  // and its line not ended
  std::chrono::steady_clock::time_point next_draw_;
};

// What a bar shows on a terminal of so many columns, shorter than those: label, bar and number, without the bar where
// there is no room for one, and no more of the label than fits. share: 0 to 1.
[[nodiscard]] std::string bar_line(const std::string& label, double share, int columns);

// A callback that draws a bar of its own; an empty one when quiet.
[[nodiscard]] OnProgress draw_progress(std::string label, bool quiet);

}  // namespace inferno::cli
