// The choice of experts: what a router's logits mean. One definition for all backends of the host.
#pragma once

#include <cstdint>

#include "backend/op_args.h"

namespace inferno {

// The experts of one token, best first, and their weights: ids and weights have routing.used elements, of which there
// are at most `experts`, or those of routing.groups_used groups, of which there are at most kMaxExpertGroups.
// `selection_bias` may be null. `scores`: memory for 2 * experts floats.
void route_row(const float* logits, const float* selection_bias, int64_t experts, const Routing& routing, float* scores,
               int32_t* ids, float* weights) noexcept;

}  // namespace inferno
