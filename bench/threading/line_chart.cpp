#include "line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace inferno::bench {

namespace {

// Distinguishable for colour-blind readers; each also has its own marker in the legend's order.
constexpr std::array<std::string_view, 4> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7"};
constexpr double kPanelWidth = 400;
constexpr double kPanelHeight = 260;
constexpr double kLeft = 60;
constexpr double kTop = 60;

std::string number(double value) {
  return fmt::format("{:g}", value);
}

}  // namespace

std::string line_chart_svg(const std::string& title, const std::vector<Panel>& panels) {
  const double width = kLeft + static_cast<double>(panels.size()) * (kPanelWidth + kLeft);
  const double height = kTop + kPanelHeight + 90;
  std::string svg;
  auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
                 "<text x=\"{2}\" y=\"22\" font-size=\"15\">{3}</text>\n",
                 width, height, kLeft, title);
  for (size_t p = 0; p < panels.size(); ++p) {
    const Panel& panel = panels[p];
    double low = 1e300;
    double high = 0;
    double last = 1;
    for (const Series& line : panel.series) {
      for (const double y : line.y) {
        low = std::min(low, y);
        high = std::max(high, y);
      }
      for (const double x : line.x) last = std::max(last, x);
    }
    const double decade_low = std::floor(std::log10(std::max(low, 1e-4)));
    const double decade_high = std::max(std::ceil(std::log10(std::max(high, 1e-4))), decade_low + 1);
    const double x0 = kLeft + static_cast<double>(p) * (kPanelWidth + kLeft);
    const auto at_x = [&](double x) { return x0 + (last > 1 ? (x - 1) / (last - 1) : 0.5) * kPanelWidth; };
    const auto at_y = [&](double y) {
      const double share = (std::log10(std::max(y, 1e-4)) - decade_low) / (decade_high - decade_low);
      return kTop + kPanelHeight * (1 - share);
    };
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\">{}</text>\n", x0, kTop - 10, panel.title);
    for (double decade = decade_low; decade <= decade_high; ++decade) {
      const double value = std::pow(10, decade);
      fmt::format_to(out,
                     "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ccc\"/>\n"
                     "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5} us</text>\n",
                     x0, x0 + kPanelWidth, at_y(value), x0 - 6, at_y(value) + 4, number(value));
    }
    const double tick = std::max(1.0, std::ceil(last / 16));
    for (double x = 1; x <= last; x += tick) {
      fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", at_x(x),
                     kTop + kPanelHeight + 18, number(x));
    }
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">threads</text>\n", x0 + kPanelWidth / 2,
                   kTop + kPanelHeight + 36);
    for (size_t s = 0; s < panel.series.size(); ++s) {
      const Series& line = panel.series[s];
      const std::string_view color = kColors[s % kColors.size()];
      std::string points;
      for (size_t i = 0; i < line.x.size(); ++i) {
        fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", at_x(line.x[i]), at_y(line.y[i]));
        fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", at_x(line.x[i]),
                       at_y(line.y[i]), color);
      }
      fmt::format_to(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, color);
      if (p == 0) {
        const double x = kLeft + static_cast<double>(s) * 260;
        const double y = height - 16;
        fmt::format_to(out, "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>\n<text x=\"{}\" y=\"{}\">{}</text>\n", x,
                       y - 4, color, x + 10, y, line.name);
      }
    }
  }
  return svg + "</svg>\n";
}

}  // namespace inferno::bench
