#include "api/split_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "model/decoder.h"
#include "model/split.h"
#include "model/tensor_names.h"
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

// "0.94,45".
std::optional<Network> measured_network(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return std::nullopt;
  const std::optional<double> rate = parse_double(std::string_view(text).substr(0, comma));
  const std::optional<double> latency = parse_double(std::string_view(text).substr(comma + 1));
  if (!rate || !latency || !std::isfinite(*rate) || !std::isfinite(*latency) || *rate <= 0 || *latency < 0) {
    fail_usage("`network` {} is not a rate in Gbit/s and a latency in us, such as 0.94,45", printable(text));
  }
  return Network{"network", *rate, *latency};
}

}  // namespace

Network find_network(const std::string& name) {
  if (const std::optional<Network> measured = measured_network(name)) return *measured;
  std::string known;
  for (const KnownNetwork& network : kNetworks) {
    if (network.name == (name.empty() ? "10GbE" : name)) {
      return {std::string(network.name), network.gbit_per_s, network.latency_us};
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", network.name);
  }
  fail_usage("`network` {} is not known (known: {}, or Gbit/s and us, such as 0.94,45)", printable(name), known);
}

SumCost sum_cost(const Network& network, int ranks, double elements, double bytes) {
  const double others = ranks - 1;
  const bool segments = ranks > 2 && elements >= static_cast<double>(Communicator::kLeastSegmented);
  // A segment goes out as it is sent, and comes back added up, as f32.
  const double sent = others * elements * (segments ? (bytes + sizeof(float)) / ranks : bytes);
  return {.us = (segments ? 2 : 1) * network.latency_us + microseconds(network, sent), .sent_bytes = sent};
}

namespace {

// Who has what.
void add_ranks(const SplitRequest& request, std::span<const ModelShare> shares, SplitPlan& split) {
  for (const ModelShare& share : shares) {
    KvConfig own = request.kv;
    own.layers = cache_layers(request.config, share);
    const LayerShare& first = share.layers[static_cast<size_t>(share.own_layers.begin)];
    split.ranks.push_back({.weight_bytes = share_bytes(request.file, request.config, share),
                           .kv_bytes = KvCache::page_bytes(own) * static_cast<uint64_t>(own.pages),
                           .first_layer = share.own_layers.begin,
                           .layers = share.own_layers.count,
                           .q_heads = first.q_heads.count,
                           .kv_heads = first.kv_heads.count,
                           .ffn = first.ffn.count,
                           .vocabulary = share.has_ends() ? share.vocabulary.count : 0});
  }
}

// The step's description, to the others one after the other, and their candidates.
double message_us(const Network& network, int ranks) {
  return 2 * network.latency_us + microseconds(network, kMessageBytes * (ranks - 1));
}

// Every rank has a part of every layer.
SplitPlan plan_tensors(const SplitRequest& request, const Network& network, const ModelPlan& plan) {
  const ModelConfig& config = request.config;
  const int ranks = request.what.ranks;
  SplitPlan split{.network = network.name, .gbit_per_s = network.gbit_per_s, .latency_us = network.latency_us};
  add_ranks(request, split_model(request.file, config, ranks, request.sizes), split);
  const auto largest = static_cast<double>(std::ranges::max(split.ranks, {}, &RankPlan::weight_bytes).weight_bytes);
  const double fraction = largest / static_cast<double>(share_bytes(request.file, config, whole_share(config)));
  const double element_bytes = request.wire == DType::bf16 ? 2 : 4;
  // After the embedding, after attention and after the MLP of every layer.
  split.sums_per_token = 2 * config.layer_count() + 1;
  split.sent_bytes_per_token =
      static_cast<uint64_t>(split.sums_per_token * sum_cost(network, ranks, config.width, element_bytes).sent_bytes);
  for (const PlannedSpeed& speed : plan.speeds) {
    const double tokens = step_tokens(speed, plan, request.what);
    const double sums = split.sums_per_token * sum_cost(network, ranks, tokens * config.width, element_bytes).us;
    const double exchange_us = sums + message_us(network, ranks);
    const double compute_us = tokens / speed.tokens_per_second * 1e6 * fraction;
    split.speeds.push_back({.what = speed.what,
                            .alone = speed.tokens_per_second,
                            .split = tokens / (compute_us + exchange_us) * 1e6,
                            .exchange_ms = exchange_us / 1e3,
                            .compute_ms = compute_us / 1e3});
  }
  return split;
}

// The time of a step on one machine by its tokens: a line through those of one token and of the prompt, of which the
// head takes a part that does not grow.
class StepLine {
 public:
  StepLine(const ModelPlan& plan, const PlanOptions& what, double ends_share) {
    const PlannedSpeed& prompt = plan.speeds.back();
    const double tokens = step_tokens(prompt, plan, what);
    one_us_ = 1e6 / plan.speeds.front().tokens_per_second;
    const double all_us = tokens / prompt.tokens_per_second * 1e6;
    token_us_ = tokens > 1 ? std::max(0.0, (all_us - one_us_) / (tokens - 1)) : 0;
    ends_us_ = one_us_ * ends_share;
  }
  [[nodiscard]] double ends_us() const { return ends_us_; }
  [[nodiscard]] double layers_us(double tokens) const { return one_us_ - ends_us_ + (tokens - 1) * token_us_; }

 private:
  double one_us_ = 0;
  double token_us_ = 0;
  double ends_us_ = 0;
};

// Bytes of the head, which every step reads, as a share of all that it reads.
double ends_share(const SplitRequest& request) {
  const FileTensor* head = request.file.find_tensor(kHeadTensor);
  if (head == nullptr) head = request.file.find_tensor(kEmbeddingTensor);
  double layers = 0;
  const ModelShare whole = whole_share(request.config);
  for (int32_t i = 0; i < request.config.layer_count(); ++i) {
    layers += static_cast<double>(share_bytes(request.file, request.config, whole, i));
  }
  const double bytes = head == nullptr ? 0 : static_cast<double>(head->bytes);
  return bytes / (layers + bytes);
}

// Layers in stages: a step's parts follow each other through them.
SplitPlan plan_stages(const SplitRequest& request, const Network& network, const ModelPlan& plan, int stages) {
  const ModelConfig& config = request.config;
  const int ranks = request.what.ranks;
  const int each = ranks / stages;
  SplitPlan split{
      .stages = stages, .network = network.name, .gbit_per_s = network.gbit_per_s, .latency_us = network.latency_us};
  const std::vector<ModelShare> shares = split_model(request.file, config, ranks, request.sizes, stages);
  add_ranks(request, shares, split);
  // Of each stage: the part of all layers' bytes that its largest rank has, and the sums over its ranks.
  std::vector<double> fractions(static_cast<size_t>(stages));
  std::vector<int> sums(static_cast<size_t>(stages));
  const ModelShare whole = whole_share(config);
  const auto layer_bytes = [&](const ModelShare& share) {
    return static_cast<double>(share_bytes(request.file, config, share) -
                               share_bytes(request.file, config, share, kNoLayer));
  };
  for (const ModelShare& share : shares) {
    const auto s = static_cast<size_t>(share.stage);
    fractions[s] = std::max(fractions[s], layer_bytes(share) / layer_bytes(whole));
    sums[s] = each == 1 ? 0 : 2 * share.own_layers.count + (s == 0 ? 1 : 0);
  }
  const double element_bytes = request.wire == DType::bf16 ? 2 : 4;
  const auto sum_us = [&](double tokens) {
    return each == 1 ? 0 : sum_cost(network, each, tokens * config.width, element_bytes).us;
  };
  const auto pass_us = [&](double tokens) {
    return network.latency_us + microseconds(network, tokens * config.width * 4);
  };
  split.sums_per_token = *std::ranges::max_element(sums);
  split.sent_bytes_per_token = static_cast<uint64_t>(config.width) * 4;
  if (each > 1) {
    split.sent_bytes_per_token +=
        static_cast<uint64_t>(split.sums_per_token * sum_cost(network, each, config.width, element_bytes).sent_bytes);
  }
  for (const PlannedSpeed& speed : plan.speeds) {
    const double tokens = step_tokens(speed, plan, request.what);
    // Decoding at a depth has its own time of a token.
    ModelPlan at = plan;
    if (tokens == 1) at.speeds.front() = speed;
    const StepLine line(at, request.what, ends_share(request));
    const double part = part_tokens(static_cast<int32_t>(tokens), stages);
    const double parts = std::ceil(tokens / part);
    double compute_us = line.ends_us() / each;
    double all_us = compute_us + pass_us(1) + message_us(network, ranks);  // the row for the head comes back
    double slowest_us = 0;
    double slowest_compute_us = 0;
    for (size_t s = 0; s < fractions.size(); ++s) {
      const double computing = fractions[s] * line.layers_us(part);
      const double stage_us = computing + sums[s] * sum_us(part) + (s + 1 < fractions.size() ? pass_us(part) : 0);
      compute_us += computing;
      all_us += stage_us;
      slowest_us = std::max(slowest_us, stage_us);
      slowest_compute_us = std::max(slowest_compute_us, computing);
    }
    all_us += (parts - 1) * slowest_us;
    compute_us += (parts - 1) * slowest_compute_us;
    split.speeds.push_back({.what = speed.what,
                            .alone = speed.tokens_per_second,
                            .split = tokens / all_us * 1e6,
                            .exchange_ms = (all_us - compute_us) / 1e3,
                            .compute_ms = compute_us / 1e3});
  }
  return split;
}

}  // namespace

std::vector<SplitPlan> plan_splits(const SplitRequest& request, const ModelPlan& plan) {
  if (request.what.ranks > kMostRanks) fail_usage("`ranks` is {}, must be 1 to {}", request.what.ranks, kMostRanks);
  const Network network = find_network(request.what.network);
  const bool chosen = request.pipeline > 1;
  std::vector<SplitPlan> splits;
  // Of two ways one may be impossible; what is asked for must not be.
  const auto add = [&](bool needed, const auto& make) {
    try {
      splits.push_back(make());
    } catch (const Error&) {
      if (needed) throw;
    }
  };
  add(!chosen, [&] { return plan_tensors(request, network, plan); });
  add(chosen, [&] { return plan_stages(request, network, plan, chosen ? request.pipeline : request.what.ranks); });
  for (SplitPlan& split : splits) {
    split.fits_alone = plan.fits.value_or(true);
    split.pays = !split.fits_alone || split.speeds.front().split > split.speeds.front().alone;
    split.pays_for_prompts = split.speeds.back().split > split.speeds.back().alone;
  }
  return splits;
}

}  // namespace inferno
