// The ops on the CPU: one run function and one scratch function per op, picked by the type of the args.
//
// run() is called by every worker of a step with the same args; scratch_of() says what memory that takes.
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
[[nodiscard]] OpScratch scratch_of(const EmbedArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LinearArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const QkvRopeStoreArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const AttentionArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const GatedMlpArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const LogitsArgs& args, const KernelTable& kernels, int threads);
[[nodiscard]] OpScratch scratch_of(const SampleArgs& args, const KernelTable& kernels, int threads);

// The parts of the weights of an op that are this worker's own. Most ops have none.
template <typename Args>
void own_reads(const Args& /*args*/, const Worker& /*worker*/, OwnReads& /*reads*/) {}
void own_reads(const LinearArgs& args, const Worker& worker, OwnReads& reads);
void own_reads(const QkvRopeStoreArgs& args, const Worker& worker, OwnReads& reads);
void own_reads(const GatedMlpArgs& args, const Worker& worker, OwnReads& reads);
void own_reads(const LogitsArgs& args, const Worker& worker, OwnReads& reads);

// The attention of one token on several threads: whoever makes the last row of q, k and v of a kv head goes on with the
// head's attention, without a barrier.
struct JoinedAttention {
  const AttentionArgs* attention = nullptr;  // null: the ops run one by one
  const LinearArgs* output = nullptr;        // what reads its result, where whoever makes a head's can convert it
};
[[nodiscard]] JoinedAttention joined_attention(const Plan& plan, size_t op, const Worker& worker);
// Both ops; the result is also in worker.converted when there is an `output`. Ticks of attention are added to *ticks if
// it is not null. Uses worker.local for both: what the projections need, then what attention does.
void run(const QkvRopeStoreArgs& args, const JoinedAttention& joined, const Worker& worker, uint64_t* ticks) noexcept;

// The attention of one token to one kv head, which sees one span only or is not shared. local: OpScratch::local bytes.
void attend_head(const AttentionArgs& args, int64_t kv_head, std::byte* local, const KernelTable& kernels) noexcept;
// Whether so many threads share the spans of items, with a barrier in the op.
[[nodiscard]] bool shares_spans(const AttentionArgs& args, int threads);

}  // namespace inferno::cpu
