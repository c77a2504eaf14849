// Logits of all ranks beside each other on the leader (AllGatherArgs), in memory that the host sees.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/op_args.h"
#include "comm/communicator.h"

namespace inferno {

// Scratch memory for rows of `columns` of all ranks together.
[[nodiscard]] int64_t gather_logits_bytes(int64_t rows, int64_t columns, int64_t ranks);
// Does nothing where the ranks have failed.
void gather_logits(const AllGatherArgs& a, std::byte* scratch, Communicator& ranks) noexcept;

}  // namespace inferno
