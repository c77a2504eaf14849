// What the server counts, as Prometheus reads it. Only on the event loop's thread, but for Histogram, which belongs to
// whoever has it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "inferno/types.h"

namespace inferno::serve {

// Where the time of the steps went, of an engine that is measured (docs/serve.md); any may be empty: it is not. Each is
// called on the event loop's thread.
struct ProfileSource {
  std::function<std::string()> json = {};
  std::function<double()> prefill_share = {};  // of what the machine allows, 0 to 1
  std::function<double()> decode_share = {};
};

class Histogram {
 public:
  // Seconds; the last bucket is everything.
  static constexpr std::array<double, 20> kBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
                                                     0.2,   0.3,   0.5,   1,    2,    5,    10,   30,    60,  300};

  void add(double seconds);
  void add(const Histogram& other);
  void write(std::string& out, std::string_view name, std::string_view help) const;
  [[nodiscard]] int64_t count() const { return count_; }

 private:
  std::array<int64_t, kBounds.size()> buckets_{};  // each without those before it
  int64_t count_ = 0;
  double sum_ = 0;
};

// Of one model, by name.
struct ModelCount {
  std::string name;
  bool is_loaded = false;
  uint64_t bytes = 0;
  int64_t loads = 0;
  int64_t unloads = 0;
  int64_t failures = 0;
};
using ModelCounts = std::vector<ModelCount>;

void add_models(std::string& out, const ModelCounts& models);

struct Metrics {
  // By path (one of the API's own, or "other") and status.
  std::map<std::pair<std::string, int>, int64_t> answers;
  int64_t cancelled = 0;    // by clients that went away
  int64_t turned_away = 0;  // the queue was full
  int64_t open = 0;         // completions that were accepted and are not answered
  int64_t connections = 0;
  int64_t lost_lines = 0;     // of the log
  double prompt_seconds = 0;  // of all requests: to their first tokens, without the queue
  double decode_seconds = 0;  // the same: from there to their last
  int64_t longest = 0;        // tokens of a request's longest text, with its prompt
  Histogram first_token;      // since the request was read
  Histogram between_tokens;
  Histogram queue;
  Histogram whole;

  [[nodiscard]] std::string text(const EngineStats& engine, const PageCounts& pages,
                                 const ProfileSource& profile = {}) const;
};

// The same by llama-server's names, for what was made to read those.
void add_llama_names(std::string& out, const Metrics& metrics, const EngineStats& engine);

}  // namespace inferno::serve
