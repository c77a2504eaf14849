// Why a model's logits are no numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kv/kv_cache.h"
#include "model/decoder.h"

namespace inferno {

// One line that names the first op whose result is not finite. Computes the tokens again, op by op, into their own
// `sequence`; between steps.
[[nodiscard]] std::string explain_logits(Backend& backend, const Model& model, const KvCache& cache,
                                         const KvSequence& sequence, std::span<const int32_t> tokens);

}  // namespace inferno
