// plan_model(): the model is made on a backend that only records.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "api/load_options.h"
#include "api/split_plan.h"
#include "backend/op_cost.h"
#include "backend/op_fields.h"
#include "backend/placement.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "inferno/tools.h"
#include "profile/dry_backend.h"
#include "profile/machine_limits.h"
#include "profile/predict.h"

namespace inferno {
namespace {

// Which layers an op runs in on which backend, in the order of the op list.
std::vector<OpPlacement> placement_of(const std::vector<OpRecord>& step, const PlacementSpec& spec) {
  struct Row {
    OpId op;
    std::string backend;
    int first_layer;
    int last_layer;
  };
  std::vector<Row> rows;
  int layer = -1;
  for (const OpRecord& record : step) {
    layer = layer_of(record).value_or(layer);
    const std::string& backend = spec.choice(record.op(), layer);
    const auto same = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& row) {
      return row.op == record.op() && row.backend == backend && row.last_layer >= layer - 1;
    });
    if (same != rows.rend()) {
      same->last_layer = layer;
    } else {
      rows.push_back({record.op(), backend, layer, layer});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return std::tie(a.op, a.first_layer) < std::tie(b.op, b.first_layer); });
  std::vector<OpPlacement> placement;
  for (Row& row : rows) {
    placement.push_back({.op = std::string(op_name(row.op)),
                         .first_layer = row.first_layer,
                         .last_layer = row.last_layer,
                         .backend = std::move(row.backend)});
  }
  return placement;
}

class CollectWeights final : public FieldVisitor {
 public:
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (w != nullptr) weights.push_back(w);
  }
  std::vector<const Weight*> weights;
};

// Bytes of the weights each backend holds: the main one all but what it leaves to a fallback, others those of their
// ops.
std::map<std::string, uint64_t> weights_by_backend(const std::vector<OpRecord>& step, const PlacementSpec& spec,
                                                   int first_fallback_layer) {
  std::map<std::string, std::map<const Weight*, uint64_t>> held;
  int layer = -1;
  for (const OpRecord& record : step) {
    layer = layer_of(record).value_or(layer);
    CollectWeights collect;
    visit_fields(record, collect);
    for (const Weight* w : collect.weights) {
      if (layer < first_fallback_layer) held[spec.backend][w] = w->bytes();
      held[spec.choice(record.op(), layer)][w] = w->bytes();
    }
  }
  std::map<std::string, uint64_t> sums;
  for (const auto& [backend, weights] : held) {
    for (const auto& [w, bytes] : weights) sums[backend] += bytes;
  }
  return sums;
}

// Of each token and each of its experts: the converted inputs, the products, and the results.
uint64_t experts_scratch(const MoeMlpArgs& a) {
  const int64_t floats = a.routing.used * (3 * a.up->shape()[1] + 2 * a.x.cols()) + 2 * a.x.cols();
  return static_cast<uint64_t>(a.x.rows() * floats * 4);
}

// The most memory an op of the step needs beside its arguments: its input converted and its products, per weight.
uint64_t scratch_estimate(const std::vector<OpRecord>& step) {
  uint64_t most = 0;
  for (const OpRecord& record : step) {
    CollectWeights collect;
    visit_fields(record, collect);
    uint64_t bytes = 0;
    if (record.op() == OpId::gated_mlp || record.op() == OpId::qkv_rope_store || record.op() == OpId::linear ||
        record.op() == OpId::layer_input) {
      int64_t tokens = 0;
      record.visit([&](const auto& args) {
        if constexpr (requires { args.x.rows(); }) tokens = args.x.rows();
      });
      for (const Weight* w : collect.weights) {
        if (w->shape().rank > 1) bytes += static_cast<uint64_t>(tokens * (w->rows() + w->cols()) * 4);
      }
    }
    if (record.op() == OpId::moe_mlp) bytes = experts_scratch(record.args<MoeMlpArgs>());
    most = std::max(most, bytes);
  }
  return most;
}

double least_us(const std::vector<OpRecord>& step, Backend& recorder, const MachineLimits& limits) {
  std::vector<OpCost> costs;
  double working_set = 0;
  for (const OpRecord& record : step) {
    costs.push_back(op_cost(record, recorder));
    working_set += costs.back().stream_bytes();
  }
  double total = 0;
  for (const OpCost& cost : costs) total += limits.least_us(cost, working_set);
  return total;
}

// Predictions for every backend a step uses.
class Trials {
 public:
  Trials(const PlacementSpec& spec, const BackendOptions& options, double model_bytes) : spec_(spec) {
    const auto add = [&](const std::string& name) {
      if (parts_.contains(name)) return;
      auto backend = create_backend(name, options);
      auto predictor = std::make_unique<StepPredictor>(*backend, model_bytes);
      parts_.emplace(name, Part{std::move(backend), std::move(predictor)});
    };
    add(spec.backend);
    for (const PlacementRule& rule : spec.rules) add(rule.backend);
  }
  [[nodiscard]] double step_us(const std::vector<OpRecord>& step, Backend& recorder) {
    double total = 0;
    int layer = -1;
    for (const OpRecord& record : step) {
      layer = layer_of(record).value_or(layer);
      total += parts_.at(spec_.choice(record.op(), layer)).predictor->op_us(record, recorder);
    }
    return total;
  }

 private:
  struct Part {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<StepPredictor> predictor;
  };
  const PlacementSpec& spec_;
  std::map<std::string, Part> parts_;
};

void check(const PlanOptions& what) {
  if (what.prompt_tokens < 1) fail_usage("`prompt_tokens` is {}, must be 1 or more", what.prompt_tokens);
  if (what.depth < 0) fail_usage("`depth` is {}, must be 0 or more", what.depth);
  if (what.ranks < 1) fail_usage("`ranks` is {}, must be 1 or more", what.ranks);
  const bool reads = what.read_gb_per_s > 0 && std::isfinite(what.read_gb_per_s);
  const bool multiplies = what.multiply_top_per_s > 0 && std::isfinite(what.multiply_top_per_s);
  if (reads != multiplies || (!reads && what.read_gb_per_s != 0)) {
    fail_usage("`machine` is what it reads in GB/s and what it multiplies in TOP/s, such as 200,5");
  }
  (void)find_network(what.network);
}

// What it all comes to, and whether that is to be had. Of layers that a device leaves to the CPU the cache is there,
// too.
void add_totals(const Backend& backend, ModelPlan& plan) {
  const bool on_host = backend.cpu_numerics();
  plan.total_bytes = plan.program_bytes + plan.kv_bytes + plan.state_bytes + plan.workspace_bytes;
  plan.ram_bytes = plan.program_bytes;
  if (plan.first_fallback_layer) {
    plan.ram_bytes += (plan.kv_bytes + plan.state_bytes) / static_cast<uint64_t>(plan.layers) *
                      static_cast<uint64_t>(plan.layers - *plan.first_fallback_layer);
  }
  for (const auto& [name, bytes] : plan.weight_bytes) {
    plan.total_bytes += bytes;
    if (name != plan.backend) plan.ram_bytes += bytes;
  }
  if (on_host) plan.ram_bytes = plan.total_bytes;
  plan.available_bytes = available_memory();
  plan.device_bytes = backend.free_memory();
  if (!plan.available_bytes) return;
  // The program's own part is not available any more.
  plan.fits = plan.ram_bytes - plan.program_bytes <= *plan.available_bytes &&
              (on_host || !plan.device_bytes || plan.total_bytes - plan.ram_bytes <= *plan.device_bytes);
}

// A machine of which no more is known.
MachineLimits other_machine(const PlanOptions& what) {
  MachineLimits limits;
  // Activations stay in caches, which are about ten times as fast.
  limits.read.push_back({.working_set = 1e6, .gb_per_s = 10 * what.read_gb_per_s});
  limits.read.push_back({.working_set = 2e6, .gb_per_s = what.read_gb_per_s});
  limits.multiply.fill(what.multiply_top_per_s * 1e3);
  return limits;
}

// Speeds: steps are recorded on the dry backend, trials of their ops run on the real ones (null: on none, limits are
// the prediction).
void predict_speeds(Engine& engine, DryBackend& dry, Trials* trials, const MachineLimits& limits,
                    const PlanOptions& what, ModelPlan& plan) {
  BareSequence sequence(engine);
  const auto predict = [&](std::string name, int32_t first, int32_t count) {
    const std::vector<int32_t> tokens(static_cast<size_t>(count), 0);
    const SampleRequest request{};
    sequence.forward(first, tokens, 1, &request);
    const std::vector<OpRecord> step = dry.step();
    const double us = trials == nullptr ? least_us(step, dry, limits) : trials->step_us(step, dry);
    PlannedSpeed speed{.what = std::move(name), .tokens_per_second = count / us * 1e6};
    if (plan.read_gb_per_s) speed.limit = count / least_us(step, dry, limits) * 1e6;
    plan.speeds.push_back(std::move(speed));
  };
  const int32_t last = engine.context() - 1;
  const int32_t at = std::min(what.depth, last);
  predict(fmt::format("decode at position {}", at), at, 1);
  for (const OpRecord& record : dry.step()) {
    plan.active_weight_bytes += static_cast<uint64_t>(op_cost(record, dry).weight_bytes);
  }
  if (last > at) predict(fmt::format("decode at position {}", last), last, 1);
  const int32_t prompt = std::min({what.prompt_tokens, engine.context(), engine.decoder().limits().max_tokens});
  predict(fmt::format("prompt of {}", prompt), 0, prompt);
}

}  // namespace

ModelPlan plan_model(const std::string& path, const LoadOptions& load, const PlanOptions& what) {
  check(what);
  const AnyModelFile file = open_model(path);
  LoadOptions alone = load;
  alone.split.clear();
  alone.pipeline = 1;
  EngineOptions options = engine_options(alone);
  options.on_progress = {};  // nothing is loaded
  options.on_info = {};
  options.check_memory = false;
  options.ranks = nullptr;
  DryBackend* dry = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    auto made = std::make_unique<DryBackend>(std::move(backend));
    dry = made.get();
    return made;
  };
  Engine engine(file, options);
  const ModelConfig& config = engine.model().config();
  PlacementSpec spec =
      parse_placement(options.backend.empty() ? default_backend_name() : std::string_view(options.backend));
  const std::vector<OpRecord> planned = dry->step();
  require_matches(spec, planned);
  // Layers that do not fit the device are as good as placed elsewhere, unless a rule says more.
  const std::optional<FallbackLayers> fallback = dry->fallback();
  const int first_fallback_layer = fallback ? fallback->first : config.layer_count();
  for (int layer = config.layer_count() - 1; layer >= first_fallback_layer; --layer) {
    spec.rules.insert(spec.rules.begin(), {.text = "", .layer = layer, .op_glob = "*", .backend = fallback->backend});
  }

  ModelPlan plan{.name = config.name,
                 .architecture = config.architecture,
                 .layers = config.layer_count(),
                 .width = config.width,
                 .vocabulary = config.vocabulary,
                 .context = engine.context(),
                 .kv_type = std::string(dtype_name(engine.cache().config().dtype)),
                 .step_tokens = engine.decoder().limits().max_tokens,
                 .placement = placement_of(planned, spec),
                 .backend = spec.backend};
  if (fallback) {
    plan.first_fallback_layer = fallback->first;
    plan.fallback_backend = fallback->backend;
  }
  plan.kv_bytes = engine.cache().bytes();
  plan.state_bytes =
      KvCache::state_bytes(engine.cache().config()) * static_cast<uint64_t>(engine.cache().config().state_slots);
  plan.workspace_bytes = dry->allocated() - plan.kv_bytes - plan.state_bytes + scratch_estimate(planned);
  plan.program_bytes = resident_memory();
  uint64_t main_bytes = 0;
  for (const auto& [backend, bytes] : weights_by_backend(planned, spec, first_fallback_layer)) {
    plan.weight_bytes.emplace_back(backend, bytes);
    if (backend == spec.backend) main_bytes = bytes;
  }
  add_totals(dry->like(), plan);
  const bool elsewhere = what.read_gb_per_s > 0;
  plan.machine = elsewhere ? "another machine" : dry->like().description();
  if (elsewhere) plan.available_bytes = plan.device_bytes = std::nullopt;
  if (elsewhere) plan.fits = std::nullopt;
  const MachineLimits limits = elsewhere ? other_machine(what) : limits_of(dry->like());
  if (limits.known() && !fallback) {
    plan.read_gb_per_s = limits.read.back().gb_per_s;
    plan.int8_gop_per_s = limits.multiply_gop_per_s(Multiply::int8);
  }
  std::optional<Trials> trials;
  if (!elsewhere) trials.emplace(spec, options.backend_options, static_cast<double>(main_bytes));
  predict_speeds(engine, *dry, trials ? &*trials : nullptr, limits, what, plan);
  if (what.ranks > 1) {
    plan.splits = plan_splits({.file = file,
                               .config = config,
                               .kv = engine.cache().config(),
                               .what = what,
                               .sizes = load.split,
                               .wire = options.wire,
                               .pipeline = load.pipeline},
                              plan);
  }
  return plan;
}

}  // namespace inferno
