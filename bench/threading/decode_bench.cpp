// Ways to dispatch a decode step and to wait: tokens per second of one model, alternating between settings.
//
//   decode_bench [MODEL] [--threads N] [--gen N] [--rounds N] [--neighbours N]
//
// Without neighbours: a whole step as one dispatch against one dispatch per op. With --neighbours N, N busy processes
// run alongside, one on each CPU: wait policies and widths under that load; the default is compared with the best of
// them.
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "backend/decorator.h"
#include "base/error.h"
#include "base/guarded_main.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "threading/thread_plan.h"

namespace inferno::bench {
namespace {

// Runs every op immediately: one dispatch each.
class OpByOp final : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;
#define OP(name, Args)                   \
  void name(const Args& args) override { \
    inner().name(args);                  \
    inner().synchronize();               \
  }
#include "backend/op_list.inc"
};

// Busy processes, each on its own CPU; they end with this object or this process.
class BusyNeighbours {
 public:
  explicit BusyNeighbours(int count) {
    const CpuLimits limits = detect_cpu_limits();
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child < 0) fail("cannot start a neighbour");
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(static_cast<size_t>(limits.allowed[static_cast<size_t>(i) % limits.allowed.size()]), &set);
        sched_setaffinity(0, sizeof set, &set);
        for (volatile uint64_t i = 0;;) i = i + 1;
      }
      children_.push_back(child);
    }
  }
  ~BusyNeighbours() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  BusyNeighbours(const BusyNeighbours&) = delete;
  BusyNeighbours& operator=(const BusyNeighbours&) = delete;

 private:
  std::vector<pid_t> children_;
};

struct Setting {
  std::string name;
  int threads = 0;
  WaitPolicy wait = {};
  bool op_by_op = false;
  bool oversubscribe = false;
  std::unique_ptr<Engine> engine = {};
  std::vector<double> speeds = {};  // tokens per second, one for each round
};

std::vector<Setting> settings_for(int threads, int neighbours) {
  std::vector<Setting> list;
  if (neighbours == 0) {
    list.push_back({.name = "one dispatch per step (default)", .threads = threads});
    list.push_back({.name = "one dispatch per op", .threads = threads, .op_by_op = true});
    return list;
  }
  list.push_back({.name = "default", .threads = threads});
  for (const uint32_t spins : {20U, 200U, 1000U, 4000U, 20000U}) {
    list.push_back({.name = fmt::format("sleeps after {} spins when disturbed", spins),
                    .threads = threads,
                    .wait = {.spins = std::max(spins, WaitPolicy{}.spins), .contended_spins = spins}});
  }
  list.push_back({.name = "sleeps after 20 spins always",
                  .threads = threads,
                  .wait = {.spins = 20, .contended_spins = 20, .linger_us = 100}});
  for (int width = 1; width < threads; width *= 2) {
    list.push_back({.name = fmt::format("{} thread{}", width, width == 1 ? "" : "s"), .threads = width});
  }
  list.push_back(
      {.name = fmt::format("{} threads, not clamped", 4 * threads), .threads = 4 * threads, .oversubscribe = true});
  return list;
}

std::unique_ptr<Engine> engine_for(const std::string& model, const Setting& setting, int32_t context) {
  EngineOptions options;
  options.backend = "simd";  // replaced below
  options.context = context;
  options.decorate = [&](std::unique_ptr<Backend> /*unused*/) -> std::unique_ptr<Backend> {
    auto pool = std::make_unique<ThreadPool>(ThreadPoolOptions{
        .threads = setting.threads, .allow_oversubscription = setting.oversubscribe, .wait = setting.wait});
    auto backend = std::make_unique<CpuBackend>("parallel", best_kernels(), std::move(pool), DType::bf16);
    if (!setting.op_by_op) return backend;
    return std::make_unique<OpByOp>(std::move(backend));
  };
  return std::make_unique<Engine>(open_model(model), options);
}

double decode(Engine& engine, int32_t tokens) {
  BareSequence sequence(engine);
  const int32_t token = 1;
  sequence.forward(0, std::span(&token, 1), 1);
  const auto begin = std::chrono::steady_clock::now();
  for (int32_t i = 1; i <= tokens; ++i) sequence.forward(i, std::span(&token, 1), 1);
  engine.backend().synchronize();
  return tokens / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(int argc, char** argv) {
  CLI::App app("Decode speed by how steps are dispatched and how threads wait");
  std::string model;
  int threads = available_cpu_count();
  int32_t tokens = 32;
  int rounds = 7;
  int neighbours = 0;
  app.add_option("MODEL", model, "model file (default: the built-in one)");
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, kMaxThreads));
  app.add_option("--gen", tokens, "tokens per round")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", rounds, "rounds of each setting")->check(CLI::Range(1, 1000));
  app.add_option("--neighbours", neighbours, "busy processes that compete for the CPUs")->check(CLI::Range(0, 1024));
  CLI11_PARSE(app, argc, argv);

  std::vector<Setting> settings = settings_for(threads, neighbours);
  for (Setting& setting : settings) setting.engine = engine_for(model, setting, tokens + 1);
  for (Setting& setting : settings) decode(*setting.engine, 2);
  {
    const BusyNeighbours busy(neighbours);
    for (int round = 0; round < rounds; ++round) {
      for (Setting& setting : settings) setting.speeds.push_back(decode(*setting.engine, tokens));
    }
  }
  double best = 0;
  for (Setting& setting : settings) {
    std::sort(setting.speeds.begin(), setting.speeds.end());
    best = std::max(best, setting.speeds[setting.speeds.size() / 2]);
  }
  fmt::print("{}, {} threads, {} CPUs, {} busy neighbours; decode of {} tokens, median of {} rounds\n",
             model.empty() ? "built-in model" : model, threads, available_cpu_count(), neighbours, tokens, rounds);
  for (const Setting& setting : settings) {
    const double median = setting.speeds[setting.speeds.size() / 2];
    fmt::print("  {:<40} {:>8.2f} tok/s  ({:.2f} to {:.2f})  {:>5.1f} % of the best\n", setting.name, median,
               setting.speeds.front(), setting.speeds.back(), 100 * median / best);
  }
  return 0;
}

}  // namespace
}  // namespace inferno::bench

int main(int argc, char** argv) {
  return inferno::guarded_main("decode_bench", inferno::bench::run, argc, argv);
}
