// What a model would be over several ranks: who has what, what they would exchange, how fast that is (docs/scale.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "file/model_file.h"
#include "inferno/tools.h"
#include "kv/kv_cache.h"
#include "model/config.h"

namespace inferno {

// What connects ranks.
struct Network {
  std::string name;
  double gbit_per_s = 0;  // each way
  double latency_us = 0;  // of one small message, software included
};
// "10GbE" and so on, or "0.94,45": Gbit/s and microseconds; another one is a usage Error that lists them. Empty: 10GbE.
[[nodiscard]] Network find_network(const std::string& name);

// Microseconds that a sum over ranks of `elements` numbers takes, each of `bytes` bytes on the wire, and what a rank
// sends for it: as Communicator::all_reduce.
struct SumCost {
  double us = 0;
  double sent_bytes = 0;
};
[[nodiscard]] SumCost sum_cost(const Network& network, int ranks, double elements, double bytes);

// What is split, and how.
struct SplitRequest {
  const ModelFile& file;
  const ModelConfig& config;
  const KvConfig& kv;
  const PlanOptions& what;
  std::span<const int32_t> sizes;  // as LoadOptions::split
  DType wire = DType::f32;
  int32_t pipeline = 1;  // as LoadOptions::pipeline
};
// ModelPlan::splits; `plan` is that of one rank. An Error when there is none, or not the one of `pipeline`.
[[nodiscard]] std::vector<SplitPlan> plan_splits(const SplitRequest& request, const ModelPlan& plan);

}  // namespace inferno
