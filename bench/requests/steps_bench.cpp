// What a step of the scheduler costs: some sequences decode beside a part of a prompt. For each size of that part the
// time of the whole step, and what one of its tokens adds to the step without any; then parts of a prompt alone. All
// sizes take turns, so that ratios hold on a machine whose speed varies.
//
//   steps_bench [--type Q8_0] [--threads 2] [--decodes 4] [--position 1000] [--tokens 8,16,24] [--rounds 9] [--ops]
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "backend/factory.h"
#include "backend/step_times.h"
#include "base/error.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string shape = "qwen3-0.6b";
  std::string type = "Q8_0";
  int threads = 0;
  int32_t decodes = 4;
  int32_t position = 1000;
  std::vector<int32_t> tokens = {0, 4, 8, 12, 16, 20, 24, 28, 32, 44, 64};
  std::vector<int32_t> alone = {16, 64, 192};
  int rounds = 9;
  bool ops = false;
};

std::vector<int32_t> prompt_of(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 7919 + 13) % 151936);
  return tokens;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  std::vector<double> ms;
  std::map<std::string, std::vector<double>> ops;
};

// ms of a step's ops, from the first worker's beginning to the last one's end. `idle`: what a worker waited for others
// of that, on average.
void add_ops(const StepTimes& times, Row& row) {
  std::map<std::string, double> sums;
  double idle = 0;
  for (size_t i = 0; i < times.ops.size(); ++i) {
    uint64_t begin = times.time(i, 0).begin;
    uint64_t end = 0;
    for (int w = 0; w < times.workers; ++w) {
      begin = std::min(begin, times.time(i, w).begin);
      end = std::max(end, times.time(i, w).end);
    }
    for (int w = 0; w < times.workers; ++w) {
      const WorkerTime& t = times.time(i, w);
      idle +=
          static_cast<double>((end - begin) - (t.end - t.begin) + t.wait) / times.ticks_per_us / 1e3 / times.workers;
    }
    sums[std::string(op_name(times.ops[i].op()))] += static_cast<double>(end - begin) / times.ticks_per_us / 1e3;
  }
  sums["idle"] = idle;
  for (const auto& [op, ms] : sums) row.ops[op].push_back(ms);
}

void run(const Options& options) {
  BackendOptions backend_options;
  backend_options.threads = options.threads;
  const std::unique_ptr<Backend> backend = create_backend("parallel", backend_options);
  int32_t each_round = 0;
  for (const int32_t n : options.tokens) each_round += n;
  for (const int32_t n : options.alone) each_round += n;
  const int32_t context = options.position + (options.rounds + 1) * each_round + 512;
  const SyntheticModel file(find_model_shape(options.shape), options.type);
  ModelRun model(*backend, file, {.context = context, .max_tokens = 512, .max_sequences = options.decodes + 1});
  for (int32_t s = 0; s < options.decodes; ++s) model.prefill(s, prompt_of(100));
  for (int32_t done = 0; done < options.position; done += 250) {
    model.prefill(options.decodes, prompt_of(std::min(250, options.position - done)), false);
  }
  model.decode(options.decodes);
  std::map<std::pair<bool, int32_t>, Row> rows;
  const auto measure = [&](Row& row, auto step) {
    const auto begin = Clock::now();
    step();
    row.ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    if (const StepTimes* times = backend->step_times()) add_ops(*times, row);
  };
  backend->set_timing(options.ops);
  for (int round = 0; round < options.rounds; ++round) {
    for (const int32_t n : options.tokens) {
      measure(rows[{false, n}], [&] {
        if (n == 0) {
          model.decode(options.decodes);
        } else {
          model.decode_beside(options.decodes, options.decodes, prompt_of(n));
        }
      });
    }
    for (const int32_t n : options.alone) {
      measure(rows[{true, n}], [&] { model.prefill(options.decodes, prompt_of(n), false); });
    }
  }
  const double without = median(rows[{false, 0}].ms);
  fmt::print("{} {}, {} decode, prompt at {} to {}, ms: medians of {}\n", options.shape, options.type, options.decodes,
             options.position, options.position + options.rounds * each_round, options.rounds);
  for (const auto& [key, row] : rows) {
    const auto& [alone, n] = key;
    const double ms = median(row.ms);
    fmt::print("{:>6} tokens {:<7} {:7.1f}  a token {:5.2f} ", n, alone ? "alone" : "beside", ms,
               n == 0 ? 0 : (ms - (alone ? 0 : without)) / n);
    for (const auto& [op, times] : row.ops) fmt::print("  {} {:.1f}", op, median(times));
    fmt::print("\n");
  }
}

int main_of(int argc, char** argv) {
  Options options;
  CLI::App app("What steps of decodes and a part of a prompt cost.");
  app.add_option("--shape", options.shape, "of the model");
  app.add_option("--type", options.type, "of its weights");
  app.add_option("--threads", options.threads, "0: as inferno chooses")->check(CLI::Range(0, 1024));
  app.add_option("--decodes", options.decodes, "sequences that decode")->check(CLI::Range(1, 64));
  app.add_option("--position", options.position, "of the prompt's first token")->check(CLI::Range(0, 65536));
  app.add_option("--tokens", options.tokens, "of the prompt beside them")->delimiter(',')->check(CLI::Range(0, 384));
  app.add_option("--alone", options.alone, "of the prompt alone")->delimiter(',')->check(CLI::Range(1, 384));
  app.add_option("--rounds", options.rounds, "of all sizes")->check(CLI::Range(1, 1000));
  app.add_flag("--ops", options.ops, "also the time of each op, which are then run one by one");
  CLI11_PARSE(app, argc, argv);
  run(options);
  return 0;
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  try {
    return inferno::main_of(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "steps_bench: {}\n", error.what());
    return 1;
  }
}
