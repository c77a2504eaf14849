// Prefill of consecutive layers on several threads as one pipeline over blocks of tokens (threading/unit_pipeline.h),
// without barriers.
//
// A layer is four ops: qkv_rope_store, attention, linear and gated_mlp, all plain, on one residual stream. Each stage
// of a block of tokens reads what the stage before it wrote for the same tokens, and attention also the cache rows of
// earlier blocks. Whatever stages write is divided by tokens, so blocks share none of it, and the same memory serves
// every layer.
#pragma once

#include <array>
#include <atomic>

#include "backend/cpu/worker.h"
#include "backend/plan.h"
#include "backend/step_times.h"
#include "threading/unit_pipeline.h"

namespace inferno::cpu {

inline constexpr size_t kLayerOps = 4;
inline constexpr int32_t kLayerStages = 8;
inline constexpr int32_t kMaxTokenBlocks = 8;
// More layers than this become several pipelines.
inline constexpr size_t kMaxJoinedLayers = 128;
// Enough counts for the pipelines of a step: those of models whose layers are all joined, with 1,024 parts of hidden
// rows.
inline constexpr size_t kJoinedCounts =
    UnitCounts::size({.stages = kMaxJoinedLayers * kLayerStages, .blocks = kMaxTokenBlocks}) + kMaxTokenBlocks * 1024;

struct JoinedLayers {
  size_t first_op = 0;
  size_t layers = 0;
  UnitGrid grid;
  int64_t hidden_parts = 0;
  // Zero before the workers start: UnitCounts::size(grid); and [blocks][hidden_parts], how many columns of each part of
  // the MLP's hidden rows are complete.
  std::atomic<uint32_t>* counts = nullptr;
  std::atomic<uint32_t>* completed = nullptr;

  // Where the shared memory of qkv_rope_store, linear and gated_mlp begins, and the size of all of it.
  std::array<int64_t, 3> shared = {};
  int64_t shared_bytes = 0;
  int64_t local_bytes = 0;
};

// The layers from op `op` of the plan on that can be joined; `layers` is 0 if there are none. The counts are not set.
[[nodiscard]] JoinedLayers find_joined_layers(const Plan& plan, size_t op, const KernelTable& kernels, int threads);

// Runs all of them. times: [op][worker] from the first op and this worker on, null when not timed; stages of several
// layers alternate, each op is reported as if it followed the one before it.
void run(const Plan& plan, const JoinedLayers& joined, const Worker& worker, WorkerTime* times) noexcept;

}  // namespace inferno::cpu
