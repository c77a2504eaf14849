// A model that clients know by a name, whether it is in memory or not.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/completion_request.h"
#include "serve/metrics.h"

namespace inferno::serve {

class ModelWaiter;

// What is told about a model that need not be loaded for it.
struct ModelFacts {
  ModelConfig config = {};
  int32_t context = 0;        // positions of a text
  int32_t slots = 0;          // texts that are computed at once
  uint64_t weight_bytes = 0;  // of its tensors
  uint64_t memory_bytes = 0;  // all that it takes when it is loaded, about
  bool on_device = false;
  bool thinks = true;     // unless a request says otherwise
  std::string file = {};  // its name, without the folder
  std::string chat_template = {};
  std::string bos = {}, eos = {};  // the texts of these tokens; empty: none
};

// memory_bytes: weights and cache.
[[nodiscard]] ModelFacts facts_of(Engine& engine);

struct LoadedModel {
  std::shared_ptr<Engine> engine;
  ProfileSource profile = {};
};

// How a server gets a model.
struct ModelSource {
  // Called on a thread that may take its time; an exception is why there is none. Should end soon with one when
  // `cancelled` becomes true.
  using Load = std::function<LoadedModel(const std::atomic<bool>& cancelled)>;

  std::string name;
  ModelFacts facts;
  Load load = {};           // empty: it is loaded and stays so
  LoadedModel loaded = {};  // no engine: not yet
};

struct ServedModel {
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { unloaded, loading, loaded, unloading };

  explicit ServedModel(ModelSource source);

  const std::string name;
  const ModelFacts facts;
  const CompletionLimits limits;
  const ModelSource::Load load;

  // Under the lock of Models.
  State state = State::unloaded;
  bool leaving = false;  // it will be unloaded when its last request has ended: new ones wait
  int64_t users = 0;     // leases
  Clock::time_point last_used = Clock::now();
  LoadedModel loaded;  // changed by the loop alone

  // The loop's.
  std::vector<std::weak_ptr<ModelWaiter>> waiters;
  bool queued = false;  // to be loaded
  int64_t loads = 0;
  int64_t unloads = 0;
  int64_t failures = 0;
  std::string failure;  // of the last load
  Clock::time_point failed_at;
};

}  // namespace inferno::serve
