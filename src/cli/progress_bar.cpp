#include "cli/progress_bar.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/standard_streams.h"

namespace inferno::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kFirstDraw = std::chrono::milliseconds(500);
constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(5);
constexpr int kBarWidth = 30;
constexpr int kLeastBarWidth = 4;

int terminal_width() {
  winsize size{};
  constexpr int kUsual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1), next_draw_(Clock::now() + kFirstDraw) {}

ProgressBar::~ProgressBar() {
  if (drawn_) draw(true);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  total_ = std::max<uint64_t>(total, 1);
  done_ = std::min(total_, done);
  if (done == 0) next_draw_ = Clock::now() + kFirstDraw;
  const bool last = done_ == total_;
  if (last ? drawn_ : Clock::now() >= next_draw_) draw(last);
}

void ProgressBar::draw(bool last) {
  drawn_ = !last;
  next_draw_ = Clock::now() + (terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  if (!terminal_) {
    if (!last || done_ == total_) print_stderr("{}: {:.0f} %\n", label_, share * 100);
    return;
  }
  print_stderr("\r{}{}", bar_line(label_, share, terminal_width()), last ? "\n" : "");
}

std::string bar_line(const std::string& label, double share, int columns) {
  // A line that fills its last column would break on some terminals.
  const std::string number = fmt::format(" {:3.0f} %", share * 100);
  const int room = std::max(0, columns - 1 - static_cast<int>(number.size()));
  std::string line = label.substr(0, static_cast<size_t>(room));
  const int width = std::min(kBarWidth, room - static_cast<int>(line.size()) - 3);  // a blank and the brackets
  if (width >= kLeastBarWidth) {
    const auto filled = static_cast<size_t>(share * width);
    line += fmt::format(" [{}{}]", std::string(filled, '#'), std::string(static_cast<size_t>(width) - filled, '.'));
  }
  return line + number;
}

OnProgress draw_progress(std::string label, bool quiet) {
  if (quiet) return {};
  auto bar = std::make_shared<ProgressBar>(std::move(label));
  return [bar](uint64_t done, uint64_t total) { bar->update(done, total); };
}

}  // namespace inferno::cli
