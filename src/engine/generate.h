// One request from beginning to end, for callers that have nothing else to run.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace inferno {

// Driver::run().
[[nodiscard]] RequestResult generate(Engine& engine, Request request, const std::atomic<bool>* cancel = nullptr);

// One sequence through the decoder, chunk by chunk, without the scheduler: for tests, verification and benchmarks that
// look at single steps.
class BareSequence {
 public:
  explicit BareSequence(Engine& engine) : engine_(engine), kv_(engine.cache()) {}

  // Feeds tokens at positions first, first + 1, ...; computes logits for the last `logit_rows` of them and, with a
  // request, draws a token from the last row. The context must suffice.
  void forward(int32_t first, std::span<const int32_t> tokens, int32_t logit_rows,
               const SampleRequest* request = nullptr);
  [[nodiscard]] KvSequence& kv() { return kv_; }

 private:
  Engine& engine_;
  KvSequence kv_;
};

// The three metrics lines, as the command line prints them.
[[nodiscard]] std::string format_metrics(const RequestMetrics& metrics);

}  // namespace inferno
