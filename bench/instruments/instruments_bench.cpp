// The overhead of --profile and --trace: one engine decodes the same tokens repeatedly, alternating between unobserved,
// profiled and traced runs, so that nothing else differs. Prints one line of JSON: the extra time of each round,
// relative to the unobserved runs before and after it.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "profile/profiling_backend.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

class Run {
 public:
  Run(const std::string& model, const std::string& backend, int32_t tokens) : tokens_(tokens) {
    EngineOptions options;
    options.backend = backend;
    options.context = tokens;
    options.decorate = [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
      auto profiling = std::make_unique<ProfilingBackend>(std::move(inner), nullptr, nullptr);
      observed_ = profiling.get();
      return profiling;
    };
    engine_ = std::make_unique<Engine>(open_model(model), options);
  }

  // Seconds of a greedy text from an empty cache.
  double seconds(Profile* profile, TraceWriter* trace) {
    observed_->watch(profile, trace);
    BareSequence sequence(*engine_);
    const SampleRequest request{};
    int32_t token = 0;
    const Clock::time_point begin = Clock::now();
    for (int32_t i = 0; i < tokens_; ++i) {
      sequence.forward(i, {&token, 1}, 1, &request);
      token = engine_->decoder().sampled()[0];
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  int32_t tokens_;
  ProfilingBackend* observed_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

void compare(const std::string& model, const std::string& backend, int32_t tokens, int rounds) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("instruments-bench-{}.json", ::getpid());
  Run run(model, backend, tokens);
  (void)run.seconds(nullptr, nullptr);
  nlohmann::json costs = {{"profile", nlohmann::json::array()}, {"trace", nlohmann::json::array()}};
  double before = run.seconds(nullptr, nullptr);
  const auto add = [&](const char* kind, double observed) {
    const double after = run.seconds(nullptr, nullptr);
    costs[kind].push_back(observed / ((before + after) / 2) - 1);
    before = after;
  };
  for (int round = 0; round < rounds; ++round) {
    Profile profile(backend, machine_limits(1));
    add("profile", run.seconds(&profile, nullptr));
    TraceWriter trace(path, backend);
    add("trace", run.seconds(nullptr, &trace));
  }
  fmt::print("{}\n", costs.dump());
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  CLI::App app("cost of profiles and traces");
  std::string model;
  std::string backend = "parallel";
  int32_t tokens = 64;
  int rounds = 9;
  app.add_option("model", model, "a .gguf file (default: the built-in model)");
  app.add_option("--backend", backend, "as for inferno");
  app.add_option("--tokens", tokens, "tokens of one run")->check(CLI::Range(1, 1 << 16));
  app.add_option("--rounds", rounds, "rounds")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    inferno::compare(model, backend, tokens, rounds);
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "instruments_bench: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
