// Many threads against one, alternating: prefill and decode of a model, and the machine's limits measured in the same
// seconds, so that a machine whose speed varies is still compared with itself.
//
//   scaling_bench MODEL... [--threads N] [--prompt N] [--gen N] [--rounds N]
//
// A round: for one thread, then for N, the 8-bit and f32 multiply peaks, a read of the bytes of a decode step,
// prefill, peaks and read again, decode, and the read again. Prefill is compared with the mean of the peaks before and
// after it, decode with the mean of the reads before and after it. The single thread runs on the CPU with the highest
// multiply peak at the start of its run: on a shared machine the least disturbed one.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/guarded_main.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "profile/machine_probe.h"
#include "profile/peak_loops.h"
#include "threading/affinity.h"
#include "threading/thread_plan.h"

namespace inferno::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models;
  int threads = 0;
  int32_t prompt = 512;
  int32_t generate = 64;  // a fifth of a second with 16 threads, long against a short disturbance
  int rounds = 5;
};

// Bytes of all matrices: what a decode step reads.
double weight_bytes(const Model& model) {
  const auto bytes = [](const Weight& w) { return static_cast<double>(w.rows() * row_bytes(w.dtype(), w.cols())); };
  double sum = bytes(model.head());
  for (int32_t i = 0; i < model.config().layer_count(); ++i) {
    const LayerWeights& w = model.layer(i);
    for (const Weight* matrix :
         {w.wq.get(), w.wk.get(), w.wv.get(), w.wo.get(), w.gate.get(), w.up.get(), w.down.get()}) {
      sum += bytes(*matrix);
    }
  }
  return sum;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The CPU with the highest 8-bit multiply rate right now.
int least_disturbed_cpu(const std::vector<int>& cpus) {
  constexpr int64_t kTurns = 20000;
  int best = cpus.front();
  double most = 0;
  for (const int cpu : cpus) {
    if (!pin_thread(pthread_self(), {cpu})) continue;
    run_multiply_loop(Multiply::int8, kTurns);
    const Clock::time_point begin = Clock::now();
    const double operations = run_multiply_loop(Multiply::int8, 4 * kTurns);
    const double speed = operations / std::chrono::duration<double>(Clock::now() - begin).count();
    if (speed > most) {
      most = speed;
      best = cpu;
    }
  }
  return best;
}

// One width: its engine and its loops.
class Side {
 public:
  Side(const std::string& model, int threads, const Options& options)
      : options_(options),
        engine_(open_model(model), engine_options(threads, options)),
        bytes_(weight_bytes(engine_.model())),
        probe_(engine_.backend().workers(), bytes_) {
    tokens_.resize(static_cast<size_t>(options.prompt));
    uint32_t state = 1;
    for (int32_t& token : tokens_) {
      state = state * 1664525U + 1013904223U;
      token = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(engine_.model().config().vocabulary));
    }
    prefill();
    decode();
  }

  // tok/s of prefill and decode; GOP/s of int8 and f32, GB/s.
  enum Figure { kPrefill, kDecode, kInt8, kF32, kRead, kFigures };
  using Figures = std::array<double, kFigures>;

  [[nodiscard]] Figures round() {
    const std::vector<int> cpus = thread_cpus(pthread_self());
    if (threads() == 1) pin_thread(pthread_self(), {least_disturbed_cpu(cpus)});
    Figures f = {};
    const Figures first = limits();
    f[kPrefill] = prefill();
    const Figures second = limits();
    f[kDecode] = decode();
    const double last_read = reading();
    pin_thread(pthread_self(), cpus);
    f[kInt8] = (first[kInt8] + second[kInt8]) / 2;
    f[kF32] = (first[kF32] + second[kF32]) / 2;
    f[kRead] = (second[kRead] + last_read) / 2;
    return f;
  }
  [[nodiscard]] int threads() const { return probe_.threads(); }
  [[nodiscard]] double bytes() const { return bytes_; }

 private:
  static EngineOptions engine_options(int threads, const Options& options) {
    EngineOptions o;
    o.backend = threads == 1 ? "simd" : "parallel";
    o.backend_options.threads = threads;
    o.context = std::max(options.prompt, options.generate + 1);
    return o;
  }
  Figures limits() {
    Figures f = {};
    f[kInt8] = probe_.multiply(Multiply::int8, turns_[0]);
    f[kF32] = probe_.multiply(Multiply::f32, turns_[1]);
    f[kRead] = reading();
    return f;
  }
  double reading() {
    double most = 0;
    for (size_t i = 0; i < 3; ++i) most = std::max(most, probe_.read(bytes_, 1 << i, turns_[2 + i]));
    return most;
  }
  double prefill() {
    BareSequence sequence(engine_);
    const Clock::time_point begin = Clock::now();
    sequence.forward(0, tokens_, 1);
    engine_.backend().synchronize();
    return options_.prompt / std::chrono::duration<double>(Clock::now() - begin).count();
  }
  double decode() {
    BareSequence sequence(engine_);
    sequence.forward(0, std::span(tokens_).first(1), 1);
    const Clock::time_point begin = Clock::now();
    for (int32_t i = 1; i <= options_.generate; ++i) sequence.forward(i, std::span(tokens_).first(1), 1);
    engine_.backend().synchronize();
    return options_.generate / std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const Options& options_;
  Engine engine_;
  double bytes_;
  MachineProbe probe_;
  std::vector<int32_t> tokens_;
  std::array<int64_t, 5> turns_ = {1, 1, 1, 1, 1};
};

void run_model(const std::string& model, const Options& options) {
  Side one(model, 1, options);
  Side many(model, options.threads, options);
  fmt::print("{}: {} threads against 1, {} MB a token, prompt {}\n", model, many.threads(),
             static_cast<int64_t>(one.bytes() / 1e6), options.prompt);
  fmt::print("  {:>5} {:>7} {:>9} {:>9} {:>11} {:>9} {:>7}\n", "round", "threads", "prefill", "decode", "int8 GOP/s",
             "f32", "GB/s");
  constexpr int kRatios = Side::kFigures;
  std::array<std::vector<double>, kRatios> ratios;
  std::array<std::vector<double>, 2> read_shares;
  for (int round = 1; round <= options.rounds; ++round) {
    const std::array<Side::Figures, 2> f = {one.round(), many.round()};
    for (size_t side = 0; side < 2; ++side) {
      const auto& v = f[side];
      fmt::print("  {:>5} {:>7} {:>9.1f} {:>9.2f} {:>11.0f} {:>9.0f} {:>7.1f}\n", round, side == 0 ? 1 : many.threads(),
                 v[Side::kPrefill], v[Side::kDecode], v[Side::kInt8], v[Side::kF32], v[Side::kRead]);
      read_shares[side].push_back(100 * v[Side::kDecode] * one.bytes() / 1e9 / v[Side::kRead]);
    }
    for (size_t i = 0; i < kRatios; ++i) ratios[i].push_back(f[1][i] / f[0][i]);
  }
  const auto list = [](const std::vector<double>& values) { return fmt::format("{:.1f}", fmt::join(values, " ")); };
  const auto print = [&](const char* name, size_t figure) {
    fmt::print("  {:<44} {:>6.1f}  ({})\n", name, median(ratios[figure]), list(ratios[figure]));
  };
  print("prefill, many over one", Side::kPrefill);
  print("decode, many over one", Side::kDecode);
  print("8-bit multiply peak, many over one", Side::kInt8);
  print("f32 multiply peak, many over one", Side::kF32);
  print("reading, many over one", Side::kRead);
  for (const auto& [name, figure] : {std::pair{"prefill in % of the ratio of 8-bit peaks", Side::kInt8},
                                     std::pair{"prefill in % of the ratio of f32 peaks", Side::kF32}}) {
    std::vector<double> shares;
    for (size_t i = 0; i < ratios[0].size(); ++i) {
      shares.push_back(100 * ratios[Side::kPrefill][i] / ratios[static_cast<size_t>(figure)][i]);
    }
    fmt::print("  {:<44} {:>6.1f}  ({})\n", name, median(shares), list(shares));
  }
  fmt::print("  {:<44} {:>6.1f}  ({})\n", "decode of one in % of what it reads", median(read_shares[0]),
             list(read_shares[0]));
  fmt::print("  {:<44} {:>6.1f}  ({})\n", "decode of many in % of what they read", median(read_shares[1]),
             list(read_shares[1]));
}

int run(int argc, char** argv) {
  CLI::App app("Many threads against one, with the machine's limits measured in the same seconds");
  Options options;
  options.threads = available_cpu_count();
  app.add_option("MODEL", options.models, "model files")->required();
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(2, kMaxThreads));
  app.add_option("--prompt", options.prompt, "tokens of the prompt")->check(CLI::Range(1, 100000));
  app.add_option("--gen", options.generate, "tokens to decode")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "rounds")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  for (const std::string& model : options.models) run_model(model, options);
  return 0;
}

}  // namespace
}  // namespace inferno::bench

int main(int argc, char** argv) {
  return inferno::guarded_main("scaling_bench", inferno::bench::run, argc, argv);
}
