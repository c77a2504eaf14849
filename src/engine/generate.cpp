#include "engine/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inferno {

RequestResult generate(Engine& engine, Request request, const std::atomic<bool>* cancel) {
  return engine.driver().run(std::move(request), cancel);
}

void BareSequence::forward(int32_t first, std::span<const int32_t> tokens, int32_t logit_rows,
                           const SampleRequest* request) {
  const auto count = static_cast<int32_t>(tokens.size());
  Decoder& decoder = engine_.decoder();
  INFERNO_CHECK(kv_.capacity() >= first + count || kv_.resize(first + count));
  const int32_t most = decoder.limits().max_tokens;
  for (int32_t begin = 0; begin < count; begin += most) {
    const int32_t chunk = std::min(most, count - begin);
    const int32_t rows = std::clamp(logit_rows - (count - begin - chunk), 0, chunk);
    decoder.clear();
    decoder.add(kv_, first + begin, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(chunk)), rows);
    const bool last = begin + chunk == count;
    decoder.run(request != nullptr && last ? std::span(request, 1) : std::span<const SampleRequest>());
  }
}

std::string format_metrics(const RequestMetrics& metrics) {
  return fmt::format(
      "metrics:\n"
      "  time_to_first_token_ms: {:.3f}\n"
      "  decode_tokens_per_second: {:.3f}\n"
      "  per_forward_ms: min {:.3f}  max {:.3f}  mean {:.3f}  (n={})\n",
      metrics.time_to_first_token_ms, metrics.decode_tokens_per_second, metrics.forward_min_ms, metrics.forward_max_ms,
      metrics.forward_mean_ms, metrics.forwards);
}

}  // namespace inferno
