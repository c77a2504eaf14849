#include "cli/progress_bar.h"

#include <gtest/gtest.h>

namespace inferno::cli {
namespace {

TEST(ProgressBar, ALineIsShorterThanTheTerminalWhateverItsLabel) {
  for (const std::string& label : {std::string("prompt"), std::string("quantizing to Q4_K_M"), std::string(300, 'x')}) {
    for (int columns = 7; columns < 120; ++columns) {
      for (const double share : {0.0, 0.004, 0.5, 0.999, 1.0}) {
        EXPECT_LT(bar_line(label, share, columns).size(), static_cast<size_t>(columns)) << label << " " << columns;
      }
    }
  }
}

TEST(ProgressBar, ShowsLabelBarAndNumberWhereThereIsRoom) {
  EXPECT_EQ(bar_line("prompt", 0.5, 80), "prompt [###############...............]  50 %");
  EXPECT_EQ(bar_line("prompt", 0.5, 20), "prompt [##..]  50 %");
  EXPECT_EQ(bar_line("prompt", 1, 16), "prompt 100 %");
  EXPECT_EQ(bar_line("quantizing to Q4_K_M", 0, 20), "quantizing to   0 %");
}

}  // namespace
}  // namespace inferno::cli
