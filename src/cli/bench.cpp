// inferno bench: how fast models run here, and how far that is from what the machine allows.
#include "api/bench.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/standard_streams.h"
#include "cli/bench_rows.h"
#include "cli/cli.h"
#include "cli/instruments.h"
#include "cli/speculation_flags.h"
#include "engine/builtin_model.h"
#include "profile/machine_limits.h"

namespace inferno::cli {
namespace {

struct BenchCommand {
  EngineFlags engine;
  Instruments instruments;
  SpeculationFlags speculation;
  std::vector<std::string> models;
  BenchOptions what;
  std::string format = "md";
  std::string plot;
  bool ops = false;

  void run();
  [[nodiscard]] std::vector<BenchRow> run_model(const std::string& path, int threads);
  [[nodiscard]] std::string settings() const;
  void warn_if_busy(double& load) const;
  void note_fewer_threads(const std::vector<BenchRow>& rows) const;
};

std::vector<BenchRow> BenchCommand::run_model(const std::string& path, int threads) {
  EngineOptions options = engine.options_for(threads);
  options.draft = speculation.draft;
  instruments.install(options);
  return bench_model(open_model(path), options, what, [&](Engine&) { instruments.finish(); });
}

std::string BenchCommand::settings() const {
  std::string text =
      fmt::format("prompt {}, gen {}, depth {}, repeat {}", what.prompt, what.generate, what.depth, what.repeat);
  if (!engine.backend.empty()) text += fmt::format(", backend {}", engine.backend);
  if (!engine.affinity.empty()) text += fmt::format(", affinity {}", engine.affinity);
  if (engine.fused != "on") text += ", fused off";
  return text;
}

void BenchCommand::warn_if_busy(double& load) const {
  if (::getloadavg(&load, 1) != 1) load = 0;
  constexpr double kBusy = 0.5;  // of one CPU
  if (load > kBusy && !engine.quiet) {
    print_stderr("bench: the machine is busy (load average {:.1f}): expect figures that are too low\n", load);
  }
}

// Where threads were compared and one of them is faster than several.
void BenchCommand::note_fewer_threads(const std::vector<BenchRow>& rows) const {
  if (engine.quiet) return;
  for (const BenchRow& one : rows) {
    if (one.threads != 1) continue;
    const auto faster = std::ranges::find_if(rows, [&](const BenchRow& more) {
      return more.threads > 1 && more.name == one.name && more.phase == one.phase && more.batch == one.batch &&
             more.tokens_per_second.median < one.tokens_per_second.median;
    });
    if (faster != rows.end()) {
      print_stderr("bench: {} of {} is faster with 1 thread than with {}\n", one.phase, one.name, faster->threads);
    }
  }
}

void BenchCommand::run() {
  speculation.apply(what);
  if (what.prompt == 0 && what.generate == 0 && !ops) fail_usage("--prompt 0 --gen 0 leaves nothing to measure");
  if (instruments.writes_files() && (models.size() > 1 || engine.thread_counts().size() > 1)) {
    fail_usage("--trace and --profile-json hold one run: give one model and one number of threads");
  }
  if (what.repeat == 0 && (ops || !plot.empty())) fail_usage("--ops and --plot need measurements: --repeat 1 or more");
  if (ops && !plot.empty()) fail_usage("--plot draws models, not --ops");
  std::optional<AtomicOutputFile> picture;
  if (!plot.empty()) picture.emplace(plot);
  std::vector<BenchRow> rows;
  BenchContext context{.version = INFERNO_VERSION,
                       .cpu = cpu_name(),
                       .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                       .settings = settings()};
  warn_if_busy(context.load);
  const auto add = [&](const std::vector<BenchRow>& measured, const std::string& file = "") {
    rows.insert(rows.end(), measured.begin(), measured.end());
    context.files.resize(rows.size(), file);
  };
  for (const int threads : engine.thread_counts()) {
    if (ops) {
      add(bench_ops(engine.load_options(threads), what.repeat));
      continue;
    }
    for (const std::string& model : models.empty() ? std::vector<std::string>{""} : models)
      add(run_model(model, threads), model);
  }
  if (what.repeat > 0) write_stdout(format_rows(rows, context, format));
  note_fewer_threads(rows);
  if (picture) {
    picture->write(plot_rows(rows, fmt::format("{} on {}", rows.front().name, cpu_name())));
    picture->commit();
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App* sub = app.add_subcommand("bench", "measure the speed of models, or of single ops, against this machine");
  sub->footer(
      "Rows show the median of the repeats and half their range (±%), what had to be moved and computed per second, "
      "and\n"
      "the share of this machine's limit, which is measured once and kept.\n"
      "Examples:\n  inferno bench model.gguf --threads 1,2\n  inferno bench model.gguf --depth 4096 --batch 8 --prompt "
      "0\n"
      "  inferno bench --ops --threads 2");
  sub->add_option("model", command->models, "one or more .gguf files (default: the built-in model)");
  sub->add_option("--prompt", command->what.prompt, "tokens of the prompt; 0: no prefill")
      ->check(CLI::Range(0, 1 << 20));
  sub->add_option("--gen", command->what.generate, "tokens to generate; 0: no decode")->check(CLI::Range(0, 1 << 20));
  sub->add_option("--depth", command->what.depth, "positions in the cache before the first token")
      ->check(CLI::Range(0, 1 << 20));
  sub->add_option("--batch", command->what.batches, "sequences decoded together, one number or several: 1,8,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1024));
  sub->add_option("--repeat", command->what.repeat,
                  "measurements of each row; 0: only run the model, for tools that watch it")
      ->check(CLI::Range(0, 1000));
  sub->add_option("--format", command->format, "md, json or csv")->check(CLI::IsMember({"md", "json", "csv"}));
  sub->add_option("--plot", command->plot, "also draw the rows into this SVG file");
  sub->add_flag("--ops", command->ops, "time every op at decode and prefill shapes instead of a model");
  command->speculation.add_to(*sub);
  command->engine.add_to(*sub);
  command->instruments.add_to(*sub);
  sub->get_option("--threads")->description("CPU threads, one or several: 1,2,4");
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
