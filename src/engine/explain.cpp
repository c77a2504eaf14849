#include "engine/explain.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "verify/finite_watch.h"

namespace inferno {
namespace {

std::optional<NonFinite> find_first(Backend& backend, const Model& model, const KvCache& cache,
                                    const KvSequence& sequence, std::span<const int32_t> tokens) {
  const int32_t most = std::min(64, cache.config().max_positions);
  FiniteWatch watch(backend, backend.outermost());
  Decoder decoder(watch, model, cache, {.max_tokens = most, .max_sequences = 1, .max_logit_rows = 1});
  const auto count = static_cast<int32_t>(tokens.size());
  for (int32_t first = 0; first < count && !watch.found(); first += most) {
    const int32_t chunk = std::min(most, count - first);
    decoder.clear();
    decoder.add(sequence, first, tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(chunk)), 1);
    decoder.run();
  }
  return watch.found();
}

}  // namespace

std::string explain_logits(Backend& backend, const Model& model, const KvCache& cache, const KvSequence& sequence,
                           std::span<const int32_t> tokens) {
  std::string first;
  try {
    if (const std::optional<NonFinite> found = find_first(backend, model, cache, sequence, tokens)) {
      const std::string layer = found->layer == kNoLayer ? "" : fmt::format(" of layer {}", found->layer);
      first =
          fmt::format("; the first result that is not finite is {} of {}{}", found->field, op_name(found->op), layer);
    }
  } catch (const Error&) {
    first.clear();  // no memory to look again: what is known is said
  }
  return fmt::format("the model's logits are not finite numbers: its weights are damaged or overflow{}", first);
}

}  // namespace inferno
