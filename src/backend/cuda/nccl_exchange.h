// Ranks that exchange by NCCL (rank_exchange.h). Sums are of f32, whatever the wire: between GPUs its bytes cost
// little.
#pragma once

#include "backend/cuda/rank_exchange.h"
#include "comm/nccl_library.h"

namespace inferno::cuda {

// Called by all ranks with the leader's id. An Error when NCCL cannot join them.
[[nodiscard]] std::unique_ptr<RankExchange> make_nccl_exchange(Communicator& ranks, const NcclLibrary& nccl,
                                                               const NcclLibrary::UniqueId& id,
                                                               const std::shared_ptr<FreeCount>& frees);

}  // namespace inferno::cuda
