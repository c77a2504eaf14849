// The ops on the CPU: one run function and one scratch function per op, picked by the type of the args.
//
// run() is called by every worker of a step with the same args; scratch_of() returns the scratch memory it needs.
#pragma once

#include "backend/cpu/worker.h"
#include "backend/op_args.h"
#include "backend/plan.h"

namespace inferno::cpu {

#define OP(name, Args) void run(const Args& args, const Worker& worker) noexcept;
#include "backend/op_list.inc"

// Most ops need none.
template <typename Args>
[[nodiscard]] OpScratch scratch_of(const Args& /*args*/, const KernelTable& /*kernels*/, int /*threads*/) {
  return {};
}
[[nodiscard]] OpScratch scratch_of(const GatherRowsArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const RouteArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const EmbedArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LinearArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const QkvRopeStoreArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const AttentionArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const GatedMlpArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const MoeMlpArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const ShortConvArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const DeltaNetArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const Mamba2Args& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LayerInputArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LatentStoreArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const HeadLinearArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LogitsArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const AllGatherArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const PassOnArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const SampleArgs& args, const KernelTable& kernels, int threads);

// The ranges of an op's weights that this worker reads, for prefetching. Most ops have none.
template <typename Args>
void weight_ranges(const Args& /*args*/, const Worker& /*worker*/, WeightRanges& /*ranges*/) {}
void weight_ranges(const LinearArgs& args, const Worker& worker, WeightRanges& ranges);
void weight_ranges(const QkvRopeStoreArgs& args, const Worker& worker, WeightRanges& ranges);
void weight_ranges(const GatedMlpArgs& args, const Worker& worker, WeightRanges& ranges);
void weight_ranges(const LogitsArgs& args, const Worker& worker, WeightRanges& ranges);

// The attention of one token on several threads, where q is a private result: the worker that completes the q, k and v
// of a kv head continues with that head's attention, without a barrier.
struct JoinedAttention {
  const AttentionArgs* attention = nullptr;  // null: the ops run one by one
  const LinearArgs* output = nullptr;        // reads attention's private result, where workers convert it head by head
};
[[nodiscard]] JoinedAttention joined_attention(const Plan& plan, size_t op, const Worker& worker);
// Runs both ops; with an `output` the result is also in worker.converted. Ticks of attention are added to *ticks if it
// is not null. Uses worker.local for both: first the scratch of the projections, then that of attention.
void run(const QkvRopeStoreArgs& args, const JoinedAttention& joined, const Worker& worker, uint64_t* ticks) noexcept;

// The projections into attention that are not plain (op_extras.h).
[[nodiscard]] OpScratch general_scratch(const QkvRopeStoreArgs& args);
void run_general(const QkvRopeStoreArgs& args, const Worker& worker) noexcept;

// The attention of one token to one kv head, whose spans are not split among workers. local: OpScratch::local bytes.
void attend_head(const AttentionArgs& args, int64_t kv_head, std::byte* local, const KernelTable& kernels) noexcept;
// Whether this many threads split the spans of items among them, with a barrier in the op.
[[nodiscard]] bool splits_spans(const AttentionArgs& args, int threads);

}  // namespace inferno::cpu
