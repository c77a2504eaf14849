// An engine of a small model and requests of it whose results are kept.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "model_runs.h"

namespace inferno::testing {

struct EngineSetup {
  std::string backend = "simd";
  int32_t sequences = 8;
  int32_t context = 512;
  int32_t pages = 0;  // 0: for all sequences
  int32_t max_tokens = 0;
  double latency_ms = 0;
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> decorate = {};
};

inline std::unique_ptr<Engine> make(const EngineSetup& setup) {
  EngineOptions options;
  options.backend = setup.backend;
  options.context = setup.context;
  options.limits = {.max_tokens = setup.max_tokens, .max_sequences = setup.sequences};
  options.scheduler.max_token_latency_ms = setup.latency_ms;
  options.decorate = setup.decorate;
  if (setup.pages > 0) {
    const auto one = make({.backend = setup.backend, .sequences = 1, .context = setup.context});
    options.kv_memory = static_cast<uint64_t>(setup.pages) * KvCache::page_bytes(one->cache().config());
  }
  return std::make_unique<Engine>(open_model(long_model("q8_0")), options);
}

inline Request request_of(int32_t seed, int32_t length, int32_t generated, int32_t vocabulary) {
  Request request{.prompt = tokens_of(seed, length, vocabulary), .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  return request;
}

// What a request made, to the bit.
struct Outcome {
  std::vector<std::vector<int32_t>> ids;
  std::vector<float> logprobs;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A request whose outcome is kept; `stop_after` tokens end a sample from its own callback.
inline std::shared_ptr<Ticket> submit_watched(Engine& engine, Request request, Outcome& outcome,
                                              int32_t stop_after = -1) {
  request.on_token = [&outcome, stop_after, seen = std::map<int32_t, int32_t>()](const TokenEvent& event) mutable {
    if (event.sample == 0) {
      for (const TokenLogprob& entry : event.logprobs) outcome.logprobs.push_back(entry.logprob);
    }
    return ++seen[event.sample] != stop_after;
  };
  request.on_finish = [&outcome](const RequestResult& result) {
    for (const Completion& sample : result.samples) outcome.ids.push_back(sample.ids);
  };
  return engine.scheduler().submit(std::move(request));
}

inline void run_all(Engine& engine) {
  while (engine.scheduler().step()) {
  }
}

inline void expect_all_pages_back(Engine& engine) {
  EXPECT_EQ(engine.cache().pool().available(), engine.cache().pool().pages());
  EXPECT_TRUE(engine.cache().pool().consistent());
}

}  // namespace inferno::testing
