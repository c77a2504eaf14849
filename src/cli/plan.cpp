// inferno plan: where a model would run, what memory it would take and how fast it would be, without loading it.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/cli.h"
#include "inferno/tools.h"

namespace inferno::cli {
namespace {

struct PlanCommand {
  EngineFlags engine;
  std::string model;
  PlanOptions what;
  std::vector<double> machine;  // GB/s, TOP/s
  bool json = false;

  void run() const;
};

std::string layers_text(const OpPlacement& row) {
  if (row.last_layer < 0) return "-";
  return row.first_layer == row.last_layer ? std::to_string(row.first_layer)
                                           : fmt::format("{}-{}", row.first_layer, row.last_layer);
}

nlohmann::ordered_json split_json(const SplitPlan& split) {
  nlohmann::ordered_json out{{"stages", split.stages},
                             {"network", split.network},
                             {"gbit_per_s", split.gbit_per_s},
                             {"latency_us", split.latency_us},
                             {"sent_bytes_per_token", split.sent_bytes_per_token},
                             {"sums_per_token", split.sums_per_token},
                             {"fits_alone", split.fits_alone},
                             {"pays", split.pays},
                             {"pays_for_prompts", split.pays_for_prompts}};
  for (const RankPlan& rank : split.ranks) {
    out["ranks"].push_back({{"weights", rank.weight_bytes},
                            {"kv", rank.kv_bytes},
                            {"first_layer", rank.first_layer},
                            {"layers", rank.layers},
                            {"heads", rank.q_heads},
                            {"kv_heads", rank.kv_heads},
                            {"ffn", rank.ffn},
                            {"vocabulary", rank.vocabulary}});
  }
  for (const SplitSpeed& speed : split.speeds) {
    out["speed"].push_back({{"what", speed.what},
                            {"alone_tok_s", speed.alone},
                            {"split_tok_s", speed.split},
                            {"compute_ms", speed.compute_ms},
                            {"exchange_ms", speed.exchange_ms}});
  }
  return out;
}

std::string as_json(const ModelPlan& plan) {
  nlohmann::ordered_json out;
  for (const OpPlacement& row : plan.placement) {
    out["placement"].push_back({{"op", row.op}, {"layers", layers_text(row)}, {"backend", row.backend}});
  }
  if (plan.first_fallback_layer) {
    out["fallback"] = {{"first_layer", *plan.first_fallback_layer}, {"backend", plan.fallback_backend}};
  }
  nlohmann::ordered_json weights = nlohmann::ordered_json::object();
  for (const auto& [backend, bytes] : plan.weight_bytes) weights[backend] = bytes;
  out["memory"] = {{"weights", weights},
                   {"weights_per_token", plan.active_weight_bytes},
                   {"kv", plan.kv_bytes},
                   {"states", plan.state_bytes},
                   {"workspace", plan.workspace_bytes},
                   {"program", plan.program_bytes},
                   {"total", plan.total_bytes},
                   {"ram", plan.ram_bytes}};
  if (plan.available_bytes) out["memory"]["available"] = *plan.available_bytes;
  if (plan.device_bytes) out["memory"]["device_available"] = *plan.device_bytes;
  if (plan.fits) out["memory"]["fits"] = *plan.fits;
  for (const PlannedSpeed& speed : plan.speeds) {
    out["speed"].push_back(
        {{"what", speed.what}, {"expected_tok_s", speed.tokens_per_second}, {"limit_tok_s", speed.limit}});
  }
  for (const SplitPlan& split : plan.splits) out["splits"].push_back(split_json(split));
  return out.dump() + "\n";
}

// "   of RAM; 21.3 GiB are available: it fits"
std::string fits_text(const ModelPlan& plan) {
  if (!plan.fits) return "";
  const std::string where =
      plan.ram_bytes == plan.total_bytes
          ? fmt::format("of RAM; {} are available", format_bytes(*plan.available_bytes))
          : fmt::format("{} of it RAM, of which {} are available, the rest on the device, which has {} free",
                        format_bytes(plan.ram_bytes), format_bytes(*plan.available_bytes),
                        format_bytes(plan.device_bytes.value_or(0)));
  return fmt::format("   {}: it {}", where, *plan.fits ? "fits" : "does not fit");
}

std::string split_text(const SplitPlan& split) {
  const std::string how = split.stages == 1 ? "every layer over all" : fmt::format("layers in {} stages", split.stages);
  std::string text = fmt::format("\n{} ranks, {}, {} ({:.3g} Gbit/s, {:.0f} us):\n", split.ranks.size(), how,
                                 split.network, split.gbit_per_s, split.latency_us);
  auto out = std::back_inserter(text);
  for (size_t r = 0; r < split.ranks.size(); ++r) {
    const RankPlan& rank = split.ranks[r];
    fmt::format_to(out,
                   "  rank {:<13}{:>12}   of weights, {} of cache; layers {}-{}, {} heads, {} kv heads, {} rows, {} "
                   "tokens\n",
                   r, format_bytes(rank.weight_bytes), format_bytes(rank.kv_bytes), rank.first_layer,
                   rank.first_layer + rank.layers - 1, rank.q_heads, rank.kv_heads, rank.ffn, rank.vocabulary);
  }
  const std::string sums = split.sums_per_token > 0 ? fmt::format(", in {} sums", split.sums_per_token) : "";
  fmt::format_to(out, "  {:<18}{:>12}   sent by each rank for a token{}\n", "exchange",
                 format_bytes(split.sent_bytes_per_token), sums);
  for (const SplitSpeed& speed : split.speeds) {
    fmt::format_to(out, "  {:<26}{:>10.1f} tok/s   {:.1f} alone; a step: {:.2f} ms computing, {:.2f} ms exchanging\n",
                   speed.what, speed.split, speed.alone, speed.compute_ms, speed.exchange_ms);
  }
  fmt::format_to(out, "  {}\n",
                 !split.fits_alone        ? "it pays: the model does not fit one of them"
                 : split.pays             ? "it pays: decoding is faster than on one of them"
                 : split.pays_for_prompts ? "it pays for prompts alone: decoding is faster on one of them"
                                          : "it does not pay: decoding is faster on one of them");
  return text;
}

std::string as_text(const ModelPlan& plan) {
  const std::string last_layers =
      plan.first_fallback_layer
          ? fmt::format(", of layers {}-{} on {}", *plan.first_fallback_layer, plan.layers - 1, plan.fallback_backend)
          : "";
  std::string text = fmt::format("model: {} ({}), {} layers of {}, vocabulary {}\n\nplacement:\n",
                                 plan.name.empty() ? "unnamed" : printable(plan.name), plan.architecture, plan.layers,
                                 plan.width, plan.vocabulary);
  auto out = std::back_inserter(text);
  for (const OpPlacement& row : plan.placement) {
    fmt::format_to(out, "  {:<18}{:<10}{}\n", row.op, layers_text(row), row.backend);
  }
  if (plan.first_fallback_layer) {
    fmt::format_to(out, "  {} of {} layers do not fit {} and stay on {}, with their cache\n",
                   plan.layers - *plan.first_fallback_layer, plan.layers, plan.backend, plan.fallback_backend);
  }
  text += "\nmemory:\n";
  for (const auto& [backend, bytes] : plan.weight_bytes) {
    fmt::format_to(out, "  {:<18}{:>12}   on {}\n", "weights", format_bytes(bytes), backend);
  }
  fmt::format_to(out, "  {:<18}{:>12}   of them read for one token\n", "", format_bytes(plan.active_weight_bytes));
  fmt::format_to(out, "  {:<18}{:>12}   {} positions, {}{}\n", "kv cache", format_bytes(plan.kv_bytes), plan.context,
                 plan.kv_type, last_layers);
  if (plan.state_bytes > 0) {
    fmt::format_to(out, "  {:<18}{:>12}   of recurrent layers, f32\n", "states", format_bytes(plan.state_bytes));
  }
  fmt::format_to(out, "  {:<18}{:>12}   about, for steps of {} tokens\n", "workspace",
                 format_bytes(plan.workspace_bytes), plan.step_tokens);
  fmt::format_to(out, "  {:<18}{:>12}\n", "program", format_bytes(plan.program_bytes));
  fmt::format_to(out, "  {:<18}{:>12}{}\n\nspeed on {}", "all", format_bytes(plan.total_bytes), fits_text(plan),
                 plan.machine);
  if (plan.read_gb_per_s && plan.int8_gop_per_s) {
    fmt::format_to(out, " ({:.0f} GB/s read, {:.0f} GOP/s int8)", *plan.read_gb_per_s, *plan.int8_gop_per_s);
  }
  text += ":\n";
  for (const PlannedSpeed& speed : plan.speeds) {
    const std::string limit = speed.limit > 0 ? fmt::format("of at most {:.1f}", speed.limit) : "";
    fmt::format_to(out, "  {:<26}{:>10.1f} tok/s   {}\n", speed.what, speed.tokens_per_second, limit);
  }
  for (const SplitPlan& split : plan.splits) text += split_text(split);
  return text;
}

void PlanCommand::run() const {
  PlanOptions options = what;
  if (!machine.empty()) {
    options.read_gb_per_s = machine[0];
    options.multiply_top_per_s = machine[1];
  }
  const ModelPlan plan = plan_model(model, engine.load_options(), options);
  write_stdout(json ? as_json(plan) : as_text(plan));
}

}  // namespace

void add_plan(CLI::App& app) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = app.add_subcommand(
      "plan", "placement, memory, whether it fits here, and expected speed of a model, without loading it");
  sub->add_option("model", command->model, "a .gguf file or a Hugging Face folder (default: the built-in model)");
  sub->add_option("--prompt-tokens", command->what.prompt_tokens, "length of the prompt to predict")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  sub->add_option("--depth", command->what.depth, "position of the single token to predict")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  sub->add_option("--ranks", command->what.ranks,
                  "machines like this one to split the model over (--split: unequally; --pipeline: in stages)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option(
         "--network", command->what.network,
         "between them: 1GbE, 10GbE, 25GbE, 100GbE, nvlink, or Gbit/s and us of a small message, such as 0.94,45")
      ->default_str("10GbE");
  sub->add_option("--machine", command->machine,
                  "GB/s it reads and TOP/s it multiplies, such as 200,5, of a machine that is not this one")
      ->delimiter(',')
      ->expected(2);
  sub->add_flag("--json", command->json, "one line of JSON");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
