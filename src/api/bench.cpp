// bench_model(): how fast a model runs here, and how far that is from what the machine allows.
#include "api/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "api/load_options.h"
#include "backend/op_cost.h"
#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "model/tensor_names.h"
#include "model/weight_types.h"
#include "profile/machine_limits.h"

namespace inferno {
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
           {w.wq.get(),   w.wk.get(),         w.wv.get(),        w.w_gate.get(),      w.wo.get(),        w.gate.get(),
            w.up.get(),   w.down.get(),       w.conv_in.get(),   w.conv_factor.get(), w.conv_gate.get(), w.z.get(),
            w.beta.get(), w.alpha.get(),      w.q_a.get(),       w.q_b.get(),         w.kv_a.get(),      w.k_b.get(),
            w.v_b.get(),  w.input_gate.get(), w.input_proj.get()}) {
        if (matrix != nullptr) add_matrix(*matrix, all);
      }
      const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
      const auto row = static_cast<double>(row_bytes(kv_.dtype, layer.head_dim));
      work_.bytes += 2.0 * sequences * (cached + tokens) * layer.kv_heads * row;
      work_.operations[static_cast<size_t>(kind)] +=
          4.0 * sequences * seen * static_cast<double>(layer.attention_width());
      if (!layer.is_recurrent()) continue;
      const auto matrices = static_cast<double>(layer.recurrent.matrix_floats());
      work_.bytes += 2.0 * sequences * (matrices + static_cast<double>(layer.recurrent.conv_floats())) * sizeof(float);
      work_.operations[static_cast<size_t>(Multiply::f32)] += 7 * all * matrices;
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

class ModelBench {
 public:
  ModelBench(Engine& engine, const BenchOptions& what, BenchRow row);
  [[nodiscard]] std::vector<BenchRow> run();

 private:
  // The first `length` tokens, of which sequence s finds in the cache what it left there, and `generated` more.
  [[nodiscard]] Request request_at(int32_t s, int32_t length, int32_t generated) const;
  void run_prefill();
  void run_decode(int32_t batch, bool guesses);
  // Seconds of `steps` steps in which each of `batch` sequences makes a token after its first.
  [[nodiscard]] double time_decode(int32_t batch, int32_t steps);
  void add_row(BenchRow row, const WorkCounter& counter, const std::vector<double>& seconds);
  [[nodiscard]] std::optional<double> percent_of_limit(const WorkCounter& counter, double seconds);

  Engine& engine_;
  const BenchOptions& what_;
  BenchRow row_;
  std::vector<int32_t> tokens_;
  bool guesses_ = false;                        // tokens are guessed ahead in what is measured now
  std::optional<MachineLimits> device_limits_;  // measured when first asked for
  std::vector<BenchRow> rows_;
};

std::string type_of_file(const ModelFile& file) {
  if (const std::optional<uint64_t> number = file.find_uint("general.file_type")) {
    const std::string_view name = file_type_name(*number);
    if (!name.empty()) return std::string(name);
  }
  const FileTensor* tensor = file.find_tensor(layer_tensor_name(0, "ffn_gate.weight"));
  return tensor != nullptr && tensor->dtype ? std::string(dtype_name(*tensor->dtype)) : "unknown";
}

void check(const BenchOptions& what) {
  constexpr int32_t kMost = 1 << 20;
  const auto in_range = [&](const char* name, int32_t value, int32_t least) {
    if (value < least || value > kMost) fail_usage("`{}` is {}, must be {} to {}", name, value, least, kMost);
  };
  in_range("prompt", what.prompt, 0);
  in_range("generate", what.generate, 0);
  in_range("depth", what.depth, 0);
  in_range("repeat", what.repeat, 0);
  if (what.batches.empty()) fail_usage("`batches` is empty; give at least one number of sequences");
  for (const int32_t batch : what.batches) in_range("batches", batch, 1);
  if (what.prompt == 0 && what.generate == 0) fail_usage("neither a prompt nor a generation leaves nothing to measure");
}

// Thread counts whose limits were measured again in this process.
bool is_first_time(int threads) {
  static std::mutex mutex;
  static std::set<int> known;
  const std::scoped_lock lock(mutex);
  return known.insert(threads).second;
}

ModelBench::ModelBench(Engine& engine, const BenchOptions& what, BenchRow row)
    : engine_(engine), what_(what), row_(std::move(row)) {
  std::mt19937 random(1);
  tokens_.resize(static_cast<size_t>(engine.context()));
  for (int32_t& token : tokens_) {
    token = static_cast<int32_t>(random() % static_cast<uint32_t>(engine.model().config().vocabulary));
  }
}

std::vector<BenchRow> ModelBench::run() {
  const int32_t most = *std::max_element(what_.batches.begin(), what_.batches.end());
  for (int32_t s = 0; s < most && what_.depth > 0; ++s) (void)generate(engine_, request_at(s, what_.depth, 0));
  if (what_.prompt > 0) run_prefill();
  for (const int32_t batch : what_.batches) {
    if (what_.generate == 0) continue;
    run_decode(batch, false);
    if (what_.lookup || engine_.draft_model() != nullptr) run_decode(batch, true);
  }
  return std::move(rows_);
}

Request ModelBench::request_at(int32_t s, int32_t length, int32_t generated) const {
  Request request{.prompt = {tokens_.begin(), tokens_.begin() + length}, .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  // A page that is not full would be copied: few positions are computed again, so that a sequence has its own pages.
  request.reuse_prefix = what_.depth >= KvCache::kPageSize;
  request.cache_salt = std::to_string(s);
  request.lookup = guesses_ && what_.lookup;
  request.draft = guesses_;
  request.max_draft = what_.max_draft;
  return request;
}

void ModelBench::run_prefill() {
  BenchRow row = row_;
  row.phase = "prefill";
  row.tokens = what_.prompt;
  const auto once = [&](int32_t round) {
    Request request = request_at(0, what_.depth + what_.prompt, 1);
    // What follows the cached positions is new in every round.
    int32_t& first = request.prompt[static_cast<size_t>(what_.depth)];
    first = (first + round + 1) % engine_.model().config().vocabulary;
    const Clock::time_point begin = Clock::now();
    const RequestResult result = generate(engine_, std::move(request));
    // In a cache without room for a copy, the positions of a page that is not full are computed again.
    const int32_t computed = what_.depth + what_.prompt - result.metrics.reused_tokens;
    return seconds_since(begin) * what_.prompt / computed;
  };
  once(what_.repeat);
  std::vector<double> seconds;
  for (int32_t i = 0; i < what_.repeat; ++i) seconds.push_back(once(i));

  WorkCounter counter(engine_.model(), engine_.cache().config());
  const int32_t chunk = engine_.decoder().limits().max_tokens;
  for (int32_t first = 0; first < what_.prompt; first += chunk) {
    const int32_t size = std::min(chunk, what_.prompt - first);
    counter.add_step(1, size, what_.depth + first, first + size == what_.prompt ? 1 : 0);
  }
  add_row(std::move(row), counter, seconds);
}

double ModelBench::time_decode(int32_t batch, int32_t steps) {
  Scheduler& scheduler = engine_.scheduler();
  std::vector<std::shared_ptr<Ticket>> tickets;
  int32_t begun = 0;
  for (int32_t s = 0; s < batch; ++s) {
    Request request = request_at(s, what_.depth + 1, steps + 1);
    request.on_token = [&begun, is_first = true](const TokenEvent&) mutable {
      begun += std::exchange(is_first, false) ? 1 : 0;
      return true;
    };
    tickets.push_back(scheduler.submit(std::move(request)));
  }
  while (begun < batch && scheduler.step()) {
  }
  const Clock::time_point begin = Clock::now();
  while (scheduler.step()) {
  }
  const double seconds = seconds_since(begin);
  for (const auto& ticket : tickets) {
    if (ticket->result().error) std::rethrow_exception(ticket->result().error);
  }
  return seconds;
}

void ModelBench::run_decode(int32_t batch, bool guesses) {
  guesses_ = guesses;
  BenchRow row = row_;
  row.phase = "decode";
  row.tokens = what_.generate;
  row.batch = batch;
  constexpr int32_t kWarmUpSteps = 8;
  (void)time_decode(batch, std::min(what_.generate, kWarmUpSteps));
  std::vector<double> seconds;
  const EngineStats before = engine_.scheduler().stats();
  for (int32_t i = 0; i < what_.repeat; ++i) seconds.push_back(time_decode(batch, what_.generate));
  if (guesses) {
    const EngineStats after = engine_.scheduler().stats();
    const auto drafted = static_cast<double>(after.drafted_tokens - before.drafted_tokens);
    const auto accepted = static_cast<double>(after.accepted_tokens - before.accepted_tokens);
    row.accepted_percent = drafted > 0 ? 100 * accepted / drafted : 0;
  }

  WorkCounter counter(engine_.model(), engine_.cache().config());
  for (int32_t i = 0; i < what_.generate; ++i) counter.add_step(batch, 1, what_.depth + 1 + i, batch);
  add_row(std::move(row), counter, seconds);
}

std::optional<double> ModelBench::percent_of_limit(const WorkCounter& counter, double seconds) {
  const auto share = [&](const MachineLimits& limits) {
    return 100 * counter.work().seconds(limits, counter.working_set()) / seconds;
  };
  if (!engine_.backend().cpu_numerics()) {
    if (!device_limits_) device_limits_ = limits_of(engine_.backend());
    return device_limits_->known() ? std::optional(share(*device_limits_)) : std::nullopt;
  }
  const int threads = engine_.backend().workers();
  const double percent = share(machine_limits(threads));
  // Nothing is faster than its limit: this one was measured on a busy machine.
  return percent > 100 && is_first_time(threads) ? share(machine_limits(threads, Remeasure::keep_best)) : percent;
}

void ModelBench::add_row(BenchRow row, const WorkCounter& counter, const std::vector<double>& seconds) {
  if (seconds.empty()) return;
  std::vector<double> speeds;
  for (const double s : seconds) speeds.push_back(1.0 * row.tokens * row.batch / s);
  row.tokens_per_second = summarize(speeds);
  // The row before is the same without guesses.
  if (row.accepted_percent) row.gain = row.tokens_per_second.median / rows_.back().tokens_per_second.median;
  const double time = summarize(seconds).median;
  row.gb_per_s = counter.work().bytes / time / 1e9;
  row.gop_per_s = counter.work().total_operations() / time / 1e9;
  row.percent_of_limit = percent_of_limit(counter, time);
  rows_.push_back(std::move(row));
}

}  // namespace

Repeats summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

std::vector<BenchRow> bench_model(const ModelFile& file, EngineOptions options, const BenchOptions& what,
                                  const std::function<void(Engine&)>& on_end) {
  check(what);
  const int64_t positions = int64_t{what.depth} + std::max(what.prompt, what.generate + 1);
  if (options.context != 0 && options.context < positions) {
    fail_usage("`context` {} is too short: `depth` and the prompt or the generation need {} positions", options.context,
               positions);
  }
  if (options.context == 0) options.context = static_cast<int32_t>(positions);
  options.limits.max_sequences = *std::max_element(what.batches.begin(), what.batches.end());
  options.limits.max_logit_rows = options.limits.max_sequences;
  if (what.max_draft < 0 || what.max_draft > kMostDraft) {
    fail_usage("`max_draft` is {}, must be 0 to {}", what.max_draft, kMostDraft);
  }
  options.scheduler.prompt_step_ms = SchedulerOptions::kWholeSteps;
  Engine engine(file, options);
  const std::string* name = file.find_string("general.name");
  const BenchRow row{.name = name != nullptr && !name->empty() ? *name : "unnamed",
                     .type = type_of_file(file),
                     .kv_type = std::string(dtype_name(engine.cache().config().dtype)),
                     .backend = std::string(engine.backend().name()),
                     .threads = engine.backend().workers(),
                     .depth = what.depth};
  std::vector<BenchRow> rows = ModelBench(engine, what, row).run();
  if (on_end) on_end(engine);
  return rows;
}

std::vector<BenchRow> bench_model(const std::string& path, const LoadOptions& options, const BenchOptions& what) {
  return bench_model(open_model(path), engine_options(options), what, {});
}

}  // namespace inferno
