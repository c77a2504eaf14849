// Empty dispatch + join, and one barrier: the inferno pool, OpenMP, and threads created for each call; 1 ... N threads.
//
//   threading_bench [--threads N] [--samples N] [--svg FILE]
//
// Prints an aligned table (median, 90th and 99th percentile in microseconds) and writes a chart of the medians. The
// contestants alternate, so that a disturbance of the machine hits all of them.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/guarded_main.h"
#include "contestants.h"
#include "line_chart.h"
#include "threading/thread_plan.h"

namespace {

using inferno::bench::Contestant;
using inferno::bench::Panel;

constexpr int kRounds = 5;

double percentile_us(std::vector<double>& samples, double share) {
  const auto index = static_cast<size_t>(share * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), samples.end());
  return samples[index] * 1e-3;
}

Panel measure(const std::string& title, const std::vector<Contestant>& contestants, bool barrier, int threads,
              int samples) {
  Panel panel{.title = title, .series = {}};
  for (const Contestant& contestant : contestants) panel.series.push_back({.name = contestant.name, .x = {}, .y = {}});
  fmt::print("{}\n  {:>7}  {:<30} {:>10} {:>10} {:>10}\n", title, "threads", "", "median us", "p90 us", "p99 us");
  for (int width = 1; width <= threads; ++width) {
    std::vector<std::vector<double>> all(contestants.size());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < contestants.size(); ++i) {
        const int count = std::max(samples / kRounds / contestants[i].cost, 10);
        const std::vector<double> part =
            barrier ? contestants[i].barrier(width, count) : contestants[i].dispatch(width, count);
        all[i].insert(all[i].end(), part.begin(), part.end());
      }
    }
    for (size_t i = 0; i < contestants.size(); ++i) {
      const double median = percentile_us(all[i], 0.5);
      fmt::print("  {:>7}  {:<30} {:>10.3f} {:>10.3f} {:>10.3f}\n", width, contestants[i].name, median,
                 percentile_us(all[i], 0.9), percentile_us(all[i], 0.99));
      panel.series[i].x.push_back(width);
      panel.series[i].y.push_back(median);
    }
  }
  return panel;
}

int run(int argc, char** argv) {
  CLI::App app("Dispatch and barrier times of the thread pool, OpenMP and thread-per-call");
  int threads = inferno::available_cpu_count();
  int samples = 50'000;
  std::string svg;
  app.add_option("--threads", threads, "largest thread count")->check(CLI::Range(1, inferno::kMaxThreads));
  app.add_option("--samples", samples, "samples per row")->check(CLI::Range(50, 10'000'000));
  app.add_option("--svg", svg, "write a chart to this file");
  CLI11_PARSE(app, argc, argv);
  const std::vector<Contestant> contestants = inferno::bench::all_contestants();
  std::vector<Panel> panels;
  panels.push_back(measure("empty dispatch + join", contestants, false, threads, samples));
  panels.push_back(measure("one barrier", contestants, true, threads, samples));
  if (!svg.empty()) {
    inferno::AtomicOutputFile file(svg);
    file.write(inferno::bench::line_chart_svg("Thread dispatch and barrier, median", panels));
    file.commit();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return inferno::guarded_main("threading_bench", run, argc, argv);
}
