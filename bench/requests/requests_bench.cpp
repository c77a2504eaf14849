// Several requests at once, as a server meets them: how long a running text waits while a long prompt arrives, how soon
// first tokens come, what a prompt costs that was seen before, and what the scheduler adds to a bare decode step.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}
double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

struct Options {
  std::string model;
  std::string backend = "parallel";
  int threads = 0;
  int rounds = 3;
  int32_t context = 4096;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    EngineOptions engine;
    engine.backend = options.backend;
    engine.backend_options.threads = options.threads;
    engine.context = options.context;
    engine.limits.max_sequences = 8;
    engine_ = std::make_unique<Engine>(open_model(options.model), engine);
    (void)generate(*engine_, request(200, 32));  // the cost model's first steps
  }

  void run() {
    for (int i = 0; i < options_.rounds; ++i) {
      prefix();
      shared_prefix();
      stall();
    }
    overhead();
    fmt::print("{:<62} {:>10} {:>9}\n", "median of " + std::to_string(options_.rounds) + " rounds", "", "ratio");
    row("first token of a prompt of 1,500", first_cold_, {});
    row("the same prompt again", first_again_, first_cold_);
    row("four with one new beginning of 1,500: the last first token", last_of_four_, first_cold_);
    row("gap of four running texts, median", gap_before_, {});
    row("the same while a prompt of 2,000 arrives, 99 %", gap_during_, {});
    row("that prompt's first token alone", long_alone_, {});
    row("that prompt's first token beside the four", long_beside_, long_alone_);
    row("bare decode step", bare_, {});
    row("decode step through the scheduler", scheduled_, bare_);
  }

 private:
  Scheduler& scheduler() { return engine_->scheduler(); }
  std::vector<int32_t> random_tokens(int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random_() % static_cast<uint32_t>(engine_->model().config().vocabulary));
    }
    return tokens;
  }
  Request request(int32_t prompt, int32_t generated) {
    Request r{.prompt = random_tokens(prompt), .max_new_tokens = generated};
    r.stop_at_end = false;
    r.text = false;
    return r;
  }
  double first_token_ms(const Request& r) { return generate(*engine_, r).metrics.time_to_first_token_ms; }
  void drain() {
    while (scheduler().step()) {
    }
  }

  void prefix() {
    const Request r = request(1500, 1);
    first_cold_.push_back(first_token_ms(r));
    first_again_.push_back(first_token_ms(r));
  }

  void shared_prefix() {
    const std::vector<int32_t> beginning = random_tokens(1500);
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (int i = 0; i < 4; ++i) {
      Request r = request(16, 1);
      r.prompt.insert(r.prompt.begin(), beginning.begin(), beginning.end());
      tickets.push_back(scheduler().submit(std::move(r)));
    }
    drain();
    double last = 0;
    for (const auto& ticket : tickets) last = std::max(last, ticket->result().metrics.time_to_first_token_ms);
    last_of_four_.push_back(last);
  }

  void stall() {
    long_alone_.push_back(first_token_ms(request(2000, 1)));
    std::vector<double> before;
    std::vector<double> during;
    std::vector<double>* gaps = &before;
    std::vector<Clock::time_point> latest(4);
    std::vector<std::shared_ptr<Ticket>> running;
    for (size_t i = 0; i < 4; ++i) {
      Request r = request(64, -1);
      r.on_token = [&, i](const TokenEvent&) {
        const Clock::time_point now = Clock::now();
        if (latest[i] != Clock::time_point()) gaps->push_back(ms_between(latest[i], now));
        latest[i] = now;
        return true;
      };
      running.push_back(scheduler().submit(std::move(r)));
    }
    while (before.size() < 80) scheduler().step();
    gaps = &during;
    const auto prompt = scheduler().submit(request(2000, 1));
    scheduler().run(*prompt);
    for (const auto& ticket : running) ticket->cancel();
    drain();
    before.erase(before.begin(), before.begin() + 20);
    gap_before_.push_back(median(before));
    gap_during_.push_back(quantile(during, 0.99));
    long_beside_.push_back(prompt->result().metrics.time_to_first_token_ms);
  }

  // One sequence, greedy, in turns of 32 tokens.
  void overhead() {
    constexpr int32_t kTokens = 32;
    for (int turn = 0; turn < 4 * options_.rounds + 1; ++turn) {
      BareSequence sequence(*engine_);
      const std::vector<int32_t> prompt = random_tokens(16);
      const SampleRequest greedy{};
      sequence.forward(0, prompt, 1, &greedy);
      const Clock::time_point bare = Clock::now();
      for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t token = engine_->decoder().sampled()[0];
        sequence.forward(16 + i, {&token, 1}, 1, &greedy);
      }
      if (turn > 0) bare_.push_back(ms_between(bare, Clock::now()) / kTokens);
      sequence.kv().clear();

      Request r = request(16, kTokens + 1);
      r.reuse_prefix = false;
      int32_t made = 0;
      r.on_token = [&](const TokenEvent&) { return ++made > 0; };
      (void)scheduler().submit(std::move(r));
      while (made == 0) scheduler().step();
      const Clock::time_point scheduled = Clock::now();
      while (made <= kTokens) scheduler().step();
      if (turn > 0) scheduled_.push_back(ms_between(scheduled, Clock::now()) / kTokens);
      drain();
    }
  }

  static void row(std::string_view what, const std::vector<double>& ms, const std::vector<double>& of) {
    fmt::print("{:<62} {:>7.2f} ms {:>9}\n", what, median(ms),
               of.empty() ? "" : fmt::format("{:.3f}", median(ms) / median(of)));
  }

  const Options& options_;
  std::unique_ptr<Engine> engine_;
  std::mt19937 random_{1};
  std::vector<double> first_cold_, first_again_, last_of_four_;
  std::vector<double> gap_before_, gap_during_, long_alone_, long_beside_;
  std::vector<double> bare_, scheduled_;
};

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  CLI::App app("several requests at once: gaps, first tokens, reuse, overhead");
  inferno::Options options;
  app.add_option("model", options.model, "a .gguf file (default: the built-in model)");
  app.add_option("--backend", options.backend, "as for inferno");
  app.add_option("--threads", options.threads, "as for inferno")->check(CLI::Range(0, 1024));
  app.add_option("--ctx", options.context, "positions of context")->check(CLI::Range(2600, 1 << 20));
  app.add_option("--rounds", options.rounds, "rounds")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    inferno::Bench(options).run();
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "requests_bench: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
