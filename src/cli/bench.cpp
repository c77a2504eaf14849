// inferno bench: how fast models run here, and how far that is from what the machine allows.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "backend/op_cost.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench_ops.h"
#include "cli/bench_rows.h"
#include "cli/cli.h"
#include "cli/instruments.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "model/tensor_names.h"
#include "model/weight_types.h"
#include "profile/machine_limits.h"

namespace inferno::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What steps cost at the least: each weight read once per step, each cached row once per step and sequence.
struct LeastWork {
  double bytes = 0;
  std::array<double, kMultiplyKinds> operations = {};

  [[nodiscard]] double total_operations() const {
    double sum = 0;
    for (const double kind : operations) sum += kind;
    return sum;
  }
  [[nodiscard]] double seconds(const MachineLimits& limits, double working_set) const {
    double multiplying = 0;
    for (int kind = 0; kind < kMultiplyKinds; ++kind) {
      multiplying += operations[static_cast<size_t>(kind)] / limits.multiply_gop_per_s(static_cast<Multiply>(kind));
    }
    return std::max(bytes / limits.read_gb_per_s(working_set), multiplying) / 1e9;
  }
};

class WorkCounter {
 public:
  WorkCounter(const Model& model, const KvConfig& kv) : model_(model), kv_(kv) {}

  // A step with `tokens` new tokens of each of `sequences`, which had `cached` positions before.
  void add_step(int32_t sequences, int32_t tokens, int32_t cached, int32_t logit_rows) {
    const ModelConfig& c = model_.config();
    const double all = 1.0 * sequences * tokens;
    const double seen = 1.0 * tokens * cached + 0.5 * tokens * (tokens + 1);
    const Multiply kind = kv_.dtype == DType::bf16 ? Multiply::bf16 : Multiply::f32;
    for (int32_t i = 0; i < c.layer_count(); ++i) {
      const LayerWeights& w = model_.layer(i);
      for (const Weight* matrix :
           {w.wq.get(), w.wk.get(), w.wv.get(), w.wo.get(), w.gate.get(), w.up.get(), w.down.get()}) {
        add_matrix(*matrix, all);
      }
      const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
      const auto row = static_cast<double>(row_bytes(kv_.dtype, layer.head_dim));
      work_.bytes += 2.0 * sequences * (cached + tokens) * layer.kv_heads * row;
      work_.operations[static_cast<size_t>(kind)] +=
          4.0 * sequences * seen * static_cast<double>(layer.attention_width());
    }
    if (logit_rows > 0) add_matrix(model_.head(), logit_rows);
    ++steps_;
  }
  [[nodiscard]] const LeastWork& work() const { return work_; }
  // Bytes one step touches: over and over the same ones.
  [[nodiscard]] double working_set() const { return work_.bytes / std::max(steps_, 1); }

 private:
  void add_matrix(const Weight& w, double tokens) {
    work_.bytes += static_cast<double>(w.rows() * row_bytes(w.dtype(), w.cols()));
    work_.operations[static_cast<size_t>(multiply_of(w.dtype()))] +=
        2 * tokens * static_cast<double>(w.rows()) * static_cast<double>(w.cols());
  }

  const Model& model_;
  const KvConfig& kv_;
  LeastWork work_;
  int steps_ = 0;
};

struct BenchCommand {
  EngineFlags engine;
  Instruments instruments;
  std::vector<std::string> models;
  int32_t prompt = 512;
  int32_t generate = 64;
  int32_t depth = 0;
  std::vector<int32_t> batches = {1};
  int32_t repeat = 3;
  std::string format = "md";
  std::string plot;
  bool ops = false;

  void run();
  void run_model(const std::string& path, int threads);
  [[nodiscard]] Request request_at(int32_t s, int32_t length, int32_t generated) const;
  void run_prefill(Engine& instance, BenchRow row);
  void run_decode(Engine& instance, BenchRow row, int32_t batch);
  void add_row(Engine& instance, BenchRow row, const WorkCounter& counter, const std::vector<double>& seconds);

  const MachineLimits& limits_of_device(Backend& backend);

  std::vector<BenchRow> rows;
  std::vector<int32_t> tokens;
  std::set<int> measured_again;                        // thread counts
  std::map<std::string, MachineLimits> device_limits;  // of devices, by backend; measured when first asked for
};

std::string type_of_file(const GgufFile& file) {
  if (const std::optional<uint64_t> number = file.find_uint("general.file_type")) {
    const std::string_view name = file_type_name(*number);
    if (!name.empty()) return std::string(name);
  }
  const FileTensor* tensor = file.find_tensor(layer_tensor_name(0, "ffn_gate.weight"));
  return tensor != nullptr && tensor->dtype ? std::string(dtype_name(*tensor->dtype)) : "unknown";
}

void BenchCommand::run_model(const std::string& path, int threads) {
  const GgufFile file = open_model(path);
  const std::string* name = file.find_string("general.name");
  EngineOptions options = engine.options_for(threads);
  const int64_t positions = int64_t{depth} + std::max(prompt, generate + 1);
  if (options.context != 0 && options.context < positions) {
    fail_usage("--ctx {} is too short: --depth and --prompt or --gen need {} positions", options.context, positions);
  }
  if (options.context == 0) options.context = static_cast<int32_t>(std::min<int64_t>(positions, INT32_MAX));
  const int32_t most = *std::max_element(batches.begin(), batches.end());
  options.limits.max_sequences = most;
  options.limits.max_logit_rows = most;
  options.scheduler.prompt_step_ms = SchedulerOptions::kWholeSteps;
  instruments.install(options);
  Engine instance(file, options);

  std::mt19937 random(1);
  tokens.resize(static_cast<size_t>(positions));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint32_t>(instance.model().config().vocabulary));
  }
  const BenchRow row{.name = name != nullptr && !name->empty() ? *name : "unnamed",
                     .type = type_of_file(file),
                     .kv_type = std::string(dtype_name(instance.cache().config().dtype)),
                     .backend = std::string(instance.backend().name()),
                     .threads = instance.backend().workers(),
                     .depth = depth};
  for (int32_t s = 0; s < most && depth > 0; ++s) (void)inferno::generate(instance, request_at(s, depth, 0));
  if (prompt > 0) run_prefill(instance, row);
  for (const int32_t batch : batches) {
    if (generate > 0) run_decode(instance, row, batch);
  }
  instruments.finish();
}

// The first `length` tokens, of which sequence s finds in the cache what it left there, and `generated` more.
Request BenchCommand::request_at(int32_t s, int32_t length, int32_t generated) const {
  Request request{.prompt = {tokens.begin(), tokens.begin() + length}, .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  request.reuse_prefix = depth > 0;
  request.cache_salt = std::to_string(s);
  return request;
}

void BenchCommand::run_prefill(Engine& instance, BenchRow row) {
  row.phase = "prefill";
  row.tokens = prompt;
  const auto once = [&](int32_t round) {
    Request request = request_at(0, depth + prompt, 1);
    // What follows the cached positions is new in every round.
    int32_t& first = request.prompt[static_cast<size_t>(depth)];
    first = (first + round + 1) % instance.model().config().vocabulary;
    const Clock::time_point begin = Clock::now();
    const RequestResult result = inferno::generate(instance, std::move(request));
    // In a cache without room for a copy, the positions of a page that is not full are computed again.
    const int32_t computed = depth + prompt - result.metrics.reused_tokens;
    return seconds_since(begin) * prompt / computed;
  };
  once(repeat);
  std::vector<double> seconds;
  for (int32_t i = 0; i < repeat; ++i) seconds.push_back(once(i));

  WorkCounter counter(instance.model(), instance.cache().config());
  const int32_t chunk = instance.decoder().limits().max_tokens;
  for (int32_t first = 0; first < prompt; first += chunk) {
    const int32_t size = std::min(chunk, prompt - first);
    counter.add_step(1, size, depth + first, first + size == prompt ? 1 : 0);
  }
  add_row(instance, std::move(row), counter, seconds);
}

void BenchCommand::run_decode(Engine& instance, BenchRow row, int32_t batch) {
  row.phase = "decode";
  row.tokens = generate;
  row.batch = batch;
  // Seconds of `steps` steps in which every sequence makes a token after its first.
  const auto once = [&](int32_t steps) {
    std::vector<std::shared_ptr<Ticket>> tickets;
    int32_t begun = 0;
    for (int32_t s = 0; s < batch; ++s) {
      Request request = request_at(s, depth + 1, steps + 1);
      request.on_token = [&begun, is_first = true](const TokenEvent&) mutable {
        begun += std::exchange(is_first, false) ? 1 : 0;
        return true;
      };
      tickets.push_back(instance.scheduler().submit(std::move(request)));
    }
    while (begun < batch) instance.scheduler().step();
    const Clock::time_point begin = Clock::now();
    while (instance.scheduler().step()) {
    }
    const double seconds = seconds_since(begin);
    for (const auto& ticket : tickets) {
      if (ticket->result().error) std::rethrow_exception(ticket->result().error);
    }
    return seconds;
  };
  constexpr int32_t kWarmUpSteps = 8;
  once(std::min(generate, kWarmUpSteps));
  std::vector<double> seconds;
  for (int32_t i = 0; i < repeat; ++i) seconds.push_back(once(generate));

  WorkCounter counter(instance.model(), instance.cache().config());
  for (int32_t i = 0; i < generate; ++i) counter.add_step(batch, 1, depth + 1 + i, batch);
  add_row(instance, std::move(row), counter, seconds);
}

const MachineLimits& BenchCommand::limits_of_device(Backend& backend) {
  const auto [entry, is_new] = device_limits.try_emplace(std::string(backend.name()));
  if (is_new) entry->second = limits_of(backend);
  return entry->second;
}

void BenchCommand::add_row(Engine& instance, BenchRow row, const WorkCounter& counter,
                           const std::vector<double>& seconds) {
  if (seconds.empty()) return;
  std::vector<double> speeds;
  for (const double s : seconds) speeds.push_back(1.0 * row.tokens * row.batch / s);
  row.tokens_per_second = summarize(speeds);
  const double time = summarize(seconds).median;
  row.gb_per_s = counter.work().bytes / time / 1e9;
  row.gop_per_s = counter.work().total_operations() / time / 1e9;
  const auto share = [&](const MachineLimits& limits) {
    return 100 * counter.work().seconds(limits, counter.working_set()) / time;
  };
  if (instance.backend().host_visible()) {
    const int threads = instance.backend().workers();
    row.percent_of_limit = share(machine_limits(threads));
    // Nothing is faster than its limit: this one was measured on a busy machine.
    if (*row.percent_of_limit > 100 && measured_again.insert(threads).second) {
      row.percent_of_limit = share(machine_limits(threads, Remeasure::keep_best));
    }
  } else if (const MachineLimits& limits = limits_of_device(instance.backend()); limits.known()) {
    row.percent_of_limit = share(limits);
  }
  rows.push_back(std::move(row));
}

void BenchCommand::run() {
  if (prompt == 0 && generate == 0 && !ops) fail_usage("--prompt 0 --gen 0 leaves nothing to measure");
  if (instruments.writes_files() && (models.size() > 1 || engine.thread_counts().size() > 1)) {
    fail_usage("--trace and --profile-json hold one run: give one model and one number of threads");
  }
  if (repeat == 0 && (ops || !plot.empty())) fail_usage("--ops and --plot need measurements: --repeat 1 or more");
  if (ops && !plot.empty()) fail_usage("--plot draws models, not --ops");
  std::optional<AtomicOutputFile> picture;
  if (!plot.empty()) picture.emplace(plot);
  for (const int threads : engine.thread_counts()) {
    if (ops) {
      const std::vector<BenchRow> measured = bench_ops(engine.options_for(threads), repeat);
      rows.insert(rows.end(), measured.begin(), measured.end());
      continue;
    }
    for (const std::string& model : models.empty() ? std::vector<std::string>{""} : models) run_model(model, threads);
  }
  if (repeat > 0) write_stdout(format_rows(rows, format));
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
  sub->add_option("--prompt", command->prompt, "tokens of the prompt; 0: no prefill")->check(CLI::Range(0, 1 << 20));
  sub->add_option("--gen", command->generate, "tokens to generate; 0: no decode")->check(CLI::Range(0, 1 << 20));
  sub->add_option("--depth", command->depth, "positions in the cache before the first token")
      ->check(CLI::Range(0, 1 << 20));
  sub->add_option("--batch", command->batches, "sequences decoded together, one number or several: 1,8,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  sub->add_option("--repeat", command->repeat,
                  "measurements of each row; 0: only run the model, for tools that watch it")
      ->check(CLI::Range(0, 1000));
  sub->add_option("--format", command->format, "md, json or csv")->check(CLI::IsMember({"md", "json", "csv"}));
  sub->add_option("--plot", command->plot, "also draw the rows into this SVG file");
  sub->add_flag("--ops", command->ops, "time every op at decode and prefill shapes instead of a model");
  command->engine.add_to(*sub);
  command->instruments.add_to(*sub);
  sub->get_option("--threads")->description("CPU threads, one or several: 1,2,4");
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
