// inferno plan: where a model would run, what memory it would take and how fast it would be, without loading it.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "backend/op_cost.h"
#include "backend/op_fields.h"
#include "backend/placement.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "profile/dry_backend.h"
#include "profile/machine_limits.h"
#include "profile/predict.h"

namespace inferno::cli {
namespace {

struct PlanCommand {
  EngineFlags engine;
  std::string model;
  int64_t prompt = 512;
  int64_t depth = 128;
  bool json = false;

  void run();
};

// Which layers an op runs in on which backend, in the order they first appear.
struct PlacementRow {
  OpId op;
  std::string backend;
  int first_layer;
  int last_layer;
};

std::vector<PlacementRow> placement_of(const std::vector<OpRecord>& step, const PlacementSpec& spec) {
  std::vector<PlacementRow> rows;
  int layer = -1;
  for (const OpRecord& record : step) {
    layer = layer_of(record).value_or(layer);
    const std::string& backend = spec.choice(record.op(), layer);
    const auto same = std::find_if(rows.rbegin(), rows.rend(), [&](const PlacementRow& row) {
      return row.op == record.op() && row.backend == backend && row.last_layer >= layer - 1;
    });
    if (same != rows.rend()) {
      same->last_layer = layer;
    } else {
      rows.push_back({record.op(), backend, layer, layer});
    }
  }
  std::sort(rows.begin(), rows.end(), [](const PlacementRow& a, const PlacementRow& b) {
    return std::tie(a.op, a.first_layer) < std::tie(b.op, b.first_layer);
  });
  return rows;
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

// The most memory an op of the step needs beside its arguments: its input converted and its products, per weight.
uint64_t scratch_estimate(const std::vector<OpRecord>& step) {
  uint64_t most = 0;
  for (const OpRecord& record : step) {
    CollectWeights collect;
    visit_fields(record, collect);
    uint64_t bytes = 0;
    if (record.op() == OpId::gated_mlp || record.op() == OpId::qkv_rope_store || record.op() == OpId::linear) {
      int64_t tokens = 0;
      record.visit([&](const auto& args) {
        if constexpr (requires { args.x.rows(); }) tokens = args.x.rows();
      });
      for (const Weight* w : collect.weights) {
        if (w->shape().rank > 1) bytes += static_cast<uint64_t>(tokens * (w->rows() + w->cols()) * 4);
      }
    }
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

std::string layers_text(const PlacementRow& row) {
  if (row.last_layer < 0) return "-";
  return row.first_layer == row.last_layer ? std::to_string(row.first_layer)
                                           : fmt::format("{}-{}", row.first_layer, row.last_layer);
}

void PlanCommand::run() {
  const GgufFile file = open_model(model);
  EngineOptions options = engine.options();
  options.on_progress = {};  // nothing is loaded
  options.on_info = {};
  DryBackend* dry = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    auto made = std::make_unique<DryBackend>(std::move(backend));
    dry = made.get();
    return made;
  };
  Engine instance(file, options);
  const ModelConfig& config = instance.model().config();
  const KvConfig& kv = instance.cache().config();
  PlacementSpec spec =
      parse_placement(engine.backend.empty() ? default_backend_name() : std::string_view(engine.backend));

  const std::vector<OpRecord> planned = dry->step();
  require_matches(spec, planned);
  // Layers that do not fit the device are as good as placed elsewhere, unless a rule says more.
  const std::optional<FallbackLayers> fallback = dry->fallback();
  const int first_fallback_layer = fallback ? fallback->first : config.layer_count();
  for (int layer = config.layer_count() - 1; layer >= first_fallback_layer; --layer) {
    spec.rules.insert(spec.rules.begin(), {.text = "", .layer = layer, .op_glob = "*", .backend = fallback->backend});
  }
  const std::vector<PlacementRow> rows = placement_of(planned, spec);
  const std::map<std::string, uint64_t> weights = weights_by_backend(planned, spec, first_fallback_layer);
  const uint64_t kv_bytes = instance.cache().bytes();
  const uint64_t workspace = dry->allocated() - kv_bytes + scratch_estimate(planned);
  uint64_t total = kv_bytes + workspace;
  uint64_t model_bytes = 0;
  for (const auto& [backend, bytes] : weights) {
    total += bytes;
    if (backend == spec.backend) model_bytes = bytes;
  }

  // Speeds: the steps are written down on the dry backend, the trials run on the real ones.
  Backend& real = dry->like();
  Trials trials(spec, options.backend_options, static_cast<double>(model_bytes));
  const MachineLimits limits = limits_of(real);
  const bool limits_known = limits.known() && !fallback;
  struct Speed {
    std::string what;
    double expected = 0;
    double limit = 0;  // 0: not known
  };
  std::vector<Speed> speeds;
  BareSequence sequence(instance);
  const auto predict = [&](std::string what, int32_t first, int32_t count) {
    const std::vector<int32_t> tokens(static_cast<size_t>(count), 0);
    const SampleRequest request{};
    sequence.forward(first, tokens, 1, &request);
    const std::vector<OpRecord> step = dry->step();
    Speed speed{.what = std::move(what), .expected = count / trials.step_us(step, *dry) * 1e6};
    if (limits_known) speed.limit = count / least_us(step, *dry, limits) * 1e6;
    speeds.push_back(std::move(speed));
  };
  const int32_t last = instance.context() - 1;
  const auto at = static_cast<int32_t>(std::min<int64_t>(depth, last));
  predict(fmt::format("decode at position {}", at), at, 1);
  if (last > at) predict(fmt::format("decode at position {}", last), last, 1);
  const auto prompt_tokens = static_cast<int32_t>(
      std::min<int64_t>({prompt, instance.context(), int64_t{instance.decoder().limits().max_tokens}}));
  predict(fmt::format("prompt of {}", prompt_tokens), 0, prompt_tokens);

  if (json) {
    nlohmann::ordered_json out;
    for (const PlacementRow& row : rows) {
      out["placement"].push_back({{"op", op_name(row.op)}, {"layers", layers_text(row)}, {"backend", row.backend}});
    }
    if (fallback) out["fallback"] = {{"first_layer", fallback->first}, {"backend", fallback->backend}};
    out["memory"] = {{"weights", weights}, {"kv", kv_bytes}, {"workspace", workspace}, {"total", total}};
    for (const Speed& speed : speeds) {
      out["speed"].push_back({{"what", speed.what}, {"expected_tok_s", speed.expected}, {"limit_tok_s", speed.limit}});
    }
    write_stdout(out.dump() + "\n");
    return;
  }
  write_stdout(fmt::format("model: {} ({}), {} layers of {}, vocabulary {}\n\nplacement:\n",
                           config.name.empty() ? "unnamed" : printable(config.name), config.architecture,
                           config.layer_count(), config.width, config.vocabulary));
  for (const PlacementRow& row : rows) {
    write_stdout(fmt::format("  {:<18}{:<10}{}\n", op_name(row.op), layers_text(row), row.backend));
  }
  if (fallback) {
    write_stdout(fmt::format("  {} of {} layers do not fit {} and stay on {}, with their cache\n",
                             config.layer_count() - fallback->first, config.layer_count(), spec.backend,
                             fallback->backend));
  }
  write_stdout("\nmemory:\n");
  for (const auto& [backend, bytes] : weights) {
    write_stdout(fmt::format("  {:<18}{:>12}   on {}\n", "weights", format_bytes(bytes), backend));
  }
  write_stdout(fmt::format(
      "  {:<18}{:>12}   {} positions, {}{}\n", "kv cache", format_bytes(kv_bytes), kv.max_positions,
      dtype_name(kv.dtype),
      fallback ? fmt::format(", of layers {}-{} on {}", fallback->first, config.layer_count() - 1, fallback->backend)
               : ""));
  write_stdout(fmt::format("  {:<18}{:>12}   about, for steps of {} tokens\n", "workspace", format_bytes(workspace),
                           instance.decoder().limits().max_tokens));
  write_stdout(fmt::format("  {:<18}{:>12}\n\nspeed on {}", "all", format_bytes(total), real.description()));
  if (limits_known) {
    write_stdout(fmt::format(" ({:.0f} GB/s read, {:.0f} GOP/s int8)", limits.read.back().gb_per_s,
                             limits.multiply_gop_per_s(Multiply::int8)));
  }
  write_stdout(":\n");
  for (const Speed& speed : speeds) {
    const std::string limit = speed.limit > 0 ? fmt::format("of at most {:.1f}", speed.limit) : "";
    write_stdout(fmt::format("  {:<26}{:>10.1f} tok/s   {}\n", speed.what, speed.expected, limit));
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = app.add_subcommand("plan", "placement, memory and expected speed of a model, without loading it");
  sub->add_option("model", command->model, "a .gguf file (default: the built-in model)");
  sub->add_option("--prompt-tokens", command->prompt, "length of the prompt to predict")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  sub->add_option("--depth", command->depth, "position of the single token to predict")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  sub->add_flag("--json", command->json, "one line of JSON");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
