// Any logits and settings: a token that may be drawn, the same one on one thread and on several.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/factory.h"
#include "backend/sampling_batch.h"
#include "base/error.h"

namespace {

using namespace inferno;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

SamplingSettings random_settings(FuzzedDataProvider& input) {
  SamplingSettings s;
  const auto number = [&](float likely) {
    return input.ConsumeBool() ? likely : std::bit_cast<float>(input.ConsumeIntegral<uint32_t>());
  };
  s.temperature = number(1);
  s.top_k = input.ConsumeIntegralInRange(-1, 40);
  s.top_p = number(0.9F);
  s.min_p = number(0.05F);
  s.repeat_penalty = number(1.1F);
  s.presence_penalty = number(0.5F);
  s.frequency_penalty = number(-0.5F);
  s.penalty_window = input.ConsumeIntegralInRange(-2, 100);
  s.seed = input.ConsumeIntegral<uint64_t>();
  return s;
}

std::vector<int32_t> draw(Backend& backend, std::span<const SampleRequest> requests, std::vector<float> logits,
                          int64_t vocabulary) {
  const auto rows = static_cast<int32_t>(requests.size());
  HostSampleBatch batch({.max_rows = rows, .vocabulary = vocabulary, .max_history = 100});
  batch.set(requests);
  std::vector<std::byte> block(batch.block().begin(), batch.block().end());
  const SampleArgs args = batch.args({logits.data(), Shape(rows, vocabulary)}, block.data(), batch.results().data());
  backend.begin_step(StepMode::plan);
  backend.sample(args);
  backend.end_step();
  backend.begin_step(StepMode::run);
  backend.sample(args);
  backend.end_step();
  backend.synchronize();
  return {batch.sampled().begin(), batch.sampled().end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto scalar = create_backend("scalar");
  static const auto parallel = create_backend("parallel", {.threads = 3});
  FuzzedDataProvider input(data, size);
  const int32_t vocabulary = input.ConsumeIntegralInRange(1, 300);
  const int32_t rows = input.ConsumeIntegralInRange(1, 4);
  std::vector<SampleRequest> requests(static_cast<size_t>(rows));
  std::vector<std::vector<int32_t>> histories(requests.size());
  std::vector<std::vector<LogitBias>> biases(requests.size());
  std::vector<std::vector<uint32_t>> masks(requests.size());
  try {
    for (size_t r = 0; r < requests.size(); ++r) {
      SampleRequest& request = requests[r];
      request.settings = random_settings(input);
      check_sampling(request.settings);
      for (int n = input.ConsumeIntegralInRange(0, 20); n > 0; --n) {
        histories[r].push_back(input.ConsumeIntegralInRange(-2, vocabulary + 2));
      }
      for (int n = input.ConsumeIntegralInRange(0, 10); n > 0; --n) {
        biases[r].push_back(
            {input.ConsumeIntegralInRange(0, vocabulary - 1), std::bit_cast<float>(input.ConsumeIntegral<uint32_t>())});
      }
      check_logit_bias(biases[r], vocabulary);
      if (input.ConsumeBool()) {
        masks[r].resize(static_cast<size_t>(bitset_words(vocabulary)));
        for (uint32_t& word : masks[r]) word = input.ConsumeIntegral<uint32_t>();
      }
      request.history = histories[r];
      request.bias = biases[r];
      request.allowed = masks[r];
      request.top_logprobs = input.ConsumeIntegralInRange(-1, kMaxTopLogprobs);
    }
  } catch (const Error&) {
    return 0;
  }
  std::vector<float> logits(static_cast<size_t>(rows * vocabulary));
  for (float& logit : logits) {
    logit = input.remaining_bytes() >= 4 ? std::bit_cast<float>(input.ConsumeIntegral<uint32_t>()) : 0;
  }
  const std::vector<int32_t> drawn = draw(*scalar, requests, logits, vocabulary);
  require(drawn == draw(*parallel, requests, logits, vocabulary));
  for (size_t r = 0; r < drawn.size(); ++r) {
    require(drawn[r] < vocabulary);
    if (drawn[r] < 0) continue;
    const auto id = static_cast<size_t>(drawn[r]);
    require(masks[r].empty() || (masks[r][id / 32] >> id % 32 & 1) != 0);
    require(logits[r * static_cast<size_t>(vocabulary) + id] > -INFINITY);
  }
  return 0;
}
