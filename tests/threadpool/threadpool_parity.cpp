// Every op on the thread pool against the same op on one thread without a pool: the same bits, for every thread count.
//
//   threadpool_parity [--quick] [--verbose] [--threads 1,2,4,8] [--filter TEXT]
//
// --quick runs the small cases only and times nothing. Otherwise a table shows, for each case at a real model's size,
// the microseconds of one thread and the speed-up with each pool. --verbose shows every case with its largest absolute
// and relative difference. Ends with status 1 when any bit differs.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "base/guarded_main.h"
#include "parity_cases.h"
#include "threading/thread_plan.h"
#include "timing.h"
#include "verify/compare.h"

namespace inferno::testing {
namespace {

struct Options {
  bool quick = false;
  bool verbose = false;
  std::vector<int> threads;
  std::string filter;
};

struct Pool {
  std::string name;
  std::unique_ptr<CpuBackend> backend;
};

std::unique_ptr<CpuBackend> backend_of(int threads, bool uneven = false) {
  std::unique_ptr<ThreadPool> pool;
  // More threads than CPUs give no speed, but must give the same bits.
  if (threads > 0) {
    pool = std::make_unique<ThreadPool>(
        ThreadPoolOptions{.threads = threads, .allow_oversubscription = true, .uneven = uneven});
  }
  return std::make_unique<CpuBackend>(threads > 0 ? "parallel" : "simd", best_kernels(), std::move(pool), DType::bf16);
}

// All the memory that the op writes, to the last byte of the cache.
bool same_bits(const OpImage& a, const OpImage& b) {
  for (size_t i = 0; i < a.block_count(); ++i) {
    if (std::memcmp(a.block(i).data(), b.block(i).data(), a.block(i).size()) != 0) return false;
  }
  return true;
}

struct Difference {
  double absolute = 0;
  double relative = 0;
};
Difference largest_difference(const OpImage& a, const OpImage& b) {
  Difference most;
  for (const FieldDifference& field : compare_written(a, a, b)) {
    most.absolute = std::max(most.absolute, field.max_abs);
    most.relative = std::max(most.relative, field.max_rel);
  }
  return most;
}

class Suite {
 public:
  explicit Suite(const Options& options) : options_(options), serial_(backend_of(0)) {
    for (const int threads : options.threads) {
      const char* mark = threads > available_cpu_count() ? "*" : "";
      pools_.push_back({fmt::format("{}{}", threads, mark), backend_of(threads)});
    }
    pools_.push_back({"2c", backend_of(2, true)});
  }

  bool run() {
    fmt::print("{} kernels, {} CPUs; pools of", serial_->kernels().name, available_cpu_count());
    for (const Pool& pool : pools_) fmt::print(" {}", pool.name);
    fmt::print(" threads against one thread without a pool\n");
    if (!options_.quick) print_header();
    for (const ParityCase& c : parity_cases(options_.quick)) {
      if (c.name.find(options_.filter) != std::string::npos) check(c);
    }
    fmt::print("{} cases, {} comparisons: {}\n", cases_, comparisons_,
               failures_ == 0 ? "all bit-identical" : fmt::format("{} DIFFER", failures_));
    if (cases_ == 0) fmt::print("no case has '{}' in its name\n", options_.filter);
    return failures_ == 0 && cases_ > 0;
  }

 private:
  void print_header() const {
    fmt::print("{:<58} {:>10}", "speed-up of each pool over one thread", "1 thread");
    for (const Pool& pool : pools_) fmt::print(" {:>7}", pool.name);
    fmt::print("\n");
  }

  void check(const ParityCase& c) {
    ++cases_;
    const OpImage image = c.make();
    WeightCopies weights(*serial_);  // one layout, so one copy serves all pools
    PlacedOp reference(image, *serial_, weights);
    reference.run();
    OpImage expected = image.clone();
    reference.download(expected);
    const bool timed = c.timed && !options_.quick;
    const double serial_seconds = timed ? seconds_of(reference) : 0;
    if (timed) fmt::print("{:<58} {:>7.0f} us", c.name, serial_seconds * 1e6);
    Difference most;
    std::vector<std::string> differing;
    for (const Pool& pool : pools_) {
      ++comparisons_;
      PlacedOp op(image, *pool.backend, weights);
      op.run();
      OpImage result = image.clone();
      op.download(result);
      if (!same_bits(expected, result)) differing.push_back(pool.name);
      if (options_.verbose || !differing.empty()) {
        const Difference d = largest_difference(expected, result);
        most = {std::max(most.absolute, d.absolute), std::max(most.relative, d.relative)};
      }
      if (timed) fmt::print(" {:>6.2f}x", serial_seconds / seconds_of(op));
    }
    if (options_.verbose && !timed) fmt::print("{:<58}", c.name);
    if (options_.verbose) fmt::print("  max abs {:g}, max rel {:g}", most.absolute, most.relative);
    if (timed || options_.verbose) fmt::print("\n");
    std::fflush(stdout);
    if (differing.empty()) return;
    ++failures_;
    fmt::print("DIFFERS: {} with {} threads: max abs {:g}, max rel {:g}\n", c.name, fmt::join(differing, ", "),
               most.absolute, most.relative);
  }

  // Ops that update in place run on what the last run left: other numbers, the same work.
  static double seconds_of(PlacedOp& op) {
    return median_seconds(1, 0.01, [&] { op.run(); });
  }

  const Options& options_;
  std::unique_ptr<CpuBackend> serial_;
  std::vector<Pool> pools_;
  int cases_ = 0;
  int comparisons_ = 0;
  int failures_ = 0;
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Every op on the thread pool against one thread: bit-identical");
  app.add_flag("--quick", options.quick, "small cases only, nothing is timed");
  app.add_flag("--verbose", options.verbose, "show the largest absolute and relative difference of every case");
  app.add_option("--threads", options.threads, "pools to compare (default 1,2,4,8; with --quick 2,4,16)")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxThreads));
  app.add_option("--filter", options.filter, "only cases with this text in their name");
  CLI11_PARSE(app, argc, argv);
  if (options.threads.empty()) options.threads = options.quick ? std::vector{2, 4, 16} : std::vector{1, 2, 4, 8};
  fmt::print(
      "* more threads than CPUs: for the bits, not for the speed; c: rows in chunks, as for cores that differ\n");
  return Suite(options).run() ? 0 : 1;
}

}  // namespace
}  // namespace inferno::testing

int main(int argc, char** argv) {
  return inferno::guarded_main("threadpool_parity", inferno::testing::run, argc, argv);
}
