#include "api/split_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "model/decoder.h"
#include "model/split.h"
#include "model/tensor_source.h"

namespace inferno {
namespace {

struct KnownNetwork {
  std::string_view name;
  double gbit_per_s;
  double latency_us;
};
// The rates of the lines less what TCP's headers take (94 %); NVLink 4: 450 GB/s each way. Latencies: docs/scale.md.
constexpr std::array<KnownNetwork, 5> kNetworks = {{
    {"1GbE", 0.94, 45},
    {"10GbE", 9.4, 25},
    {"25GbE", 23.5, 20},
    {"100GbE", 94, 10},
    {"nvlink", 3600, 8},
}};

constexpr int32_t kMostRanks = 1024;
// What the leader tells the others before a step.
constexpr double kMessageBytes = 1024;

double microseconds(const Network& network, double bytes) {
  return bytes * 8 / (network.gbit_per_s * 1e3);
}

// Tokens of a step that PlannedSpeed is about: one, but for those of prompts.
double step_tokens(const PlannedSpeed& speed, const ModelPlan& plan, const PlanOptions& what) {
  return speed.what.starts_with("prompt") ? std::min({what.prompt_tokens, plan.context, plan.step_tokens}) : 1;
}

}  // namespace

Network find_network(const std::string& name) {
  std::string known;
  for (const KnownNetwork& network : kNetworks) {
    if (network.name == (name.empty() ? "10GbE" : name)) {
      return {std::string(network.name), network.gbit_per_s, network.latency_us};
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", network.name);
  }
  fail_usage("`network` {} is not known (known: {})", printable(name), known);
}

SumCost sum_cost(const Network& network, int ranks, double elements, double bytes) {
  const double others = ranks - 1;
  const bool segments = ranks > 2 && elements >= static_cast<double>(Communicator::kLeastSegmented) && bytes > 2;
  const double sent = segments ? 2 * others / ranks * elements * bytes : others * elements * bytes;
  return {.us = (segments ? 2 : 1) * network.latency_us + microseconds(network, sent), .sent_bytes = sent};
}

SplitPlan plan_split(const ModelFile& file, const ModelConfig& config, const KvConfig& kv, const PlanOptions& what,
                     std::span<const int32_t> sizes, DType wire, const ModelPlan& plan) {
  if (what.ranks > kMostRanks) fail_usage("`ranks` is {}, must be 1 to {}", what.ranks, kMostRanks);
  const Network network = find_network(what.network);
  SplitPlan split{.network = network.name, .gbit_per_s = network.gbit_per_s, .latency_us = network.latency_us};
  double largest = 0;
  for (const ModelShare& share : split_model(file, config, what.ranks, sizes)) {
    KvConfig own = kv;
    own.layers = cache_layers(config_of(config, share));
    const LayerShare& first = share.layers.front();
    split.ranks.push_back({.weight_bytes = share_bytes(file, config, share),
                           .kv_bytes = KvCache::page_bytes(own) * static_cast<uint64_t>(own.pages),
                           .q_heads = first.q_heads.count,
                           .kv_heads = first.kv_heads.count,
                           .ffn = first.ffn.count,
                           .vocabulary = share.vocabulary.count});
    largest = std::max(largest, static_cast<double>(split.ranks.back().weight_bytes));
  }
  const double fraction = largest / static_cast<double>(share_bytes(file, config, whole_share(config)));
  const double element_bytes = wire == DType::bf16 ? 2 : 4;
  // After the embedding, after attention and after the MLP of every layer.
  split.sums_per_token = 2 * config.layer_count() + 1;
  split.sent_bytes_per_token = static_cast<uint64_t>(
      split.sums_per_token * sum_cost(network, what.ranks, config.width, element_bytes).sent_bytes);
  for (const PlannedSpeed& speed : plan.speeds) {
    const double tokens = step_tokens(speed, plan, what);
    const double alone_us = tokens / speed.tokens_per_second * 1e6;
    const double sums = split.sums_per_token * sum_cost(network, what.ranks, tokens * config.width, element_bytes).us;
    // The step's description, to the others one after the other, and their candidates.
    const double step = 2 * network.latency_us + microseconds(network, kMessageBytes * (what.ranks - 1));
    const double exchange_us = what.ranks == 1 ? 0 : sums + step;
    const double compute_us = alone_us * fraction;
    split.speeds.push_back({.what = speed.what,
                            .alone = speed.tokens_per_second,
                            .split = tokens / (compute_us + exchange_us) * 1e6,
                            .exchange_ms = exchange_us / 1e3,
                            .compute_ms = compute_us / 1e3});
  }
  split.fits_alone = plan.fits.value_or(true);
  split.pays = !split.fits_alone || split.speeds.front().split > split.speeds.front().alone;
  return split;
}

}  // namespace inferno
