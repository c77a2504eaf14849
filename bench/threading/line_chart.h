// A line chart as SVG text: x = thread count, y = microseconds on a logarithmic scale.
#pragma once

#include <string>
#include <vector>

namespace inferno::bench {

struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

struct Panel {
  std::string title;
  std::vector<Series> series;
};

// Panels side by side with one legend.
[[nodiscard]] std::string line_chart_svg(const std::string& title, const std::vector<Panel>& panels);

}  // namespace inferno::bench
