#include "base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kFirstDraw = std::chrono::milliseconds(500);
constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(5);
constexpr int kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, uint64_t total, bool quiet)
    : label_(std::move(label)),
      total_(std::max<uint64_t>(total, 1)),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_draw_(Clock::now() + kFirstDraw) {}

Progress::~Progress() {
  if (drawn_) draw(true);
}

void Progress::advance(uint64_t amount) {
  done_ = std::min(total_, done_ + amount);
  if (quiet_ || Clock::now() < next_draw_) return;
  draw(false);
}

void Progress::draw(bool last) {
  drawn_ = true;
  next_draw_ = Clock::now() + (terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  if (!terminal_) {
    if (!last || done_ == total_) fmt::print(stderr, "{}: {:.0f} %\n", label_, share * 100);
    return;
  }
  const int filled = static_cast<int>(share * kBarWidth);
  fmt::print(stderr, "\r{} [{}{}] {:3.0f} %{}", label_, std::string(static_cast<size_t>(filled), '#'),
             std::string(static_cast<size_t>(kBarWidth - filled), '.'), share * 100, last ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace inferno
