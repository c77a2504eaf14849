// The ops on the CPU: one run function and one scratch function per op, picked by the type of the args.
//
// run() is called by every worker of a step with the same args; scratch_of() says what memory that takes.
#pragma once

#include "backend/cpu/worker.h"
#include "backend/op_args.h"

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

// What this worker reads first of the weights of an op. Most ops have none.
template <typename Args>
[[nodiscard]] ReadAhead first_reads(const Args& /*args*/, const Worker& /*worker*/) {
  return {};
}
[[nodiscard]] ReadAhead first_reads(const LinearArgs& args, const Worker& worker);
[[nodiscard]] ReadAhead first_reads(const QkvRopeStoreArgs& args, const Worker& worker);
[[nodiscard]] ReadAhead first_reads(const GatedMlpArgs& args, const Worker& worker);
[[nodiscard]] ReadAhead first_reads(const LogitsArgs& args, const Worker& worker);

}  // namespace inferno::cpu
