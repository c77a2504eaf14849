#include "api/load_options.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "comm/world.h"

namespace inferno {
namespace {

constexpr int32_t kMaxSequences = 1024;
constexpr double kMaxLatencyMs = 1e6;

DType cache_type(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype || (is_quantized(*dtype) && *dtype != DType::q8_0) || *dtype == DType::i32) {
    fail_usage("`kv_type` {} is not a cache type (known: f32, f16, bf16, q8_0)", printable(name));
  }
  return *dtype;
}

DType wire_type(const std::string& name) {
  if (name.empty() || name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  fail_usage("`wire` {} is not what sums can be sent as (known: f32, bf16)", printable(name));
}

}  // namespace

EngineOptions engine_options(const LoadOptions& options) {
  if (options.threads < 0) fail_usage("`threads` is {}; give 1 or more, or 0 for the default", options.threads);
  if (options.context < 0) fail_usage("`context` is {}; give 1 or more, or 0 for the default", options.context);
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    fail_usage("`max_sequences` is {}, must be 1 to {}", options.max_sequences, kMaxSequences);
  }
  if (!(options.max_token_latency_ms >= 0 && options.max_token_latency_ms <= kMaxLatencyMs)) {
    fail_usage("`max_token_latency_ms` {} is not a number from 0 (the default) to {}", options.max_token_latency_ms,
               kMaxLatencyMs);
  }
  EngineOptions result;
  result.backend = options.backend;
  result.backend_options.threads = options.threads;
  if (!options.affinity.empty()) parse_affinity(options.affinity, result.backend_options.placement);
  if (!options.numa.empty()) parse_numa(options.numa, result.backend_options.placement);
  result.backend_options.fused = options.fused;
  result.context = options.context;
  if (!options.kv_type.empty()) result.kv_dtype = cache_type(options.kv_type);
  result.limits.max_sequences = options.max_sequences;
  result.draft = options.draft;
  result.kv_memory = options.kv_memory;
  result.scheduler.max_token_latency_ms = options.max_token_latency_ms;
  result.all_logits = options.all_logits;
  result.ranks = &world();
  result.split = options.split;
  if (!options.split.empty() && world().size() == 1) {
    fail_usage("`split` is for several ranks, and this program has one; start it with mpirun");
  }
  result.pipeline = options.pipeline;
  if (options.pipeline < 1) fail_usage("`pipeline` is {}; give the number of stages, 1 or more", options.pipeline);
  if (options.pipeline > 1 && world().size() == 1) {
    fail_usage("`pipeline` is for several ranks, and this program has one; start it with mpirun");
  }
  result.wire = wire_type(options.wire);
  result.on_progress = options.on_progress;
  result.on_info = options.on_info;
  result.on_step = options.on_step;
  return result;
}

}  // namespace inferno
