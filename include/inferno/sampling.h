// What decides which token is drawn (docs/sampling.md). Values out of range, NaN included, are an Error.
#pragma once

#include <cstdint>

namespace inferno {

struct SamplingSettings {
  float temperature = 0;        // 0: always the likeliest token
  int32_t top_k = 0;            // 0: off
  float top_p = 1;              // 1: off
  float min_p = 0;              // 0: off
  float repeat_penalty = 1;     // 1: off
  float presence_penalty = 0;   // -2 .. 2
  float frequency_penalty = 0;  // -2 .. 2
  int32_t penalty_window = 64;  // latest tokens the penalties look back on; 0: none, -1: all
  uint64_t seed = 0;
};
struct LogitBias {
  int32_t id;
  float bias;  // added to the logit; -inf bans
};
struct TokenLogprob {
  int32_t id;
  float logprob;
};

inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr int32_t kMaxLogitBias = 1024;  // entries of one request

}  // namespace inferno
