#include "quant/codebook_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace inferno {
namespace {

constexpr int kCodes = 16;
constexpr int kCount = 32;
// Candidates are tried side by side, one per lane, so that the compiler makes vectors of them.
constexpr size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

// How far beyond the end of the codebook a candidate puts the largest value, in steps between its last two values:
// below 0 the end stays unused, above 0 values are cut. The plain choice comes first, so that it wins ties.
constexpr Lanes kStretch = {0.0F, -0.9F, -0.75F, -0.6F, -0.45F, -0.3F, -0.2F, -0.1F,
                            0.1F, 0.2F,  0.3F,   0.4F,  0.5F,   0.6F,  0.75F, 0.9F};

// Halfway between neighbours: v is nearest to value i + 1 or above if it is greater than middle i.
std::array<float, kCodes - 1> middles_of(const int8_t* codebook) noexcept {
  std::array<float, kCodes - 1> middles;
  for (size_t i = 0; i < middles.size(); ++i) middles[i] = 0.5F * static_cast<float>(codebook[i] + codebook[i + 1]);
  return middles;
}

struct Candidate {
  float scale = 0.0F;
  float gain = 0.0F;  // what it takes off the sum of squares
};

// The best of the scales that put `peak` around `end`, a multiple of the codebook.
Candidate best_around(const float* x, const float* w, float peak, float end, float step,
                      const int8_t* codebook) noexcept {
  const std::array<float, kCodes - 1> middles = middles_of(codebook);
  Lanes inverse;
  for (size_t t = 0; t < kLanes; ++t) inverse[t] = (end + kStretch[t] * step) / peak;
  Lanes qq = {};
  Lanes xq = {};
  for (int i = 0; i < kCount; ++i) {
    Lanes value;
    Lanes level;
    for (size_t t = 0; t < kLanes; ++t) value[t] = x[i] * inverse[t];
    level.fill(static_cast<float>(codebook[0]));
    for (size_t c = 0; c < middles.size(); ++c) {
      const auto next = static_cast<float>(codebook[c + 1]);
      for (size_t t = 0; t < kLanes; ++t) level[t] = value[t] > middles[c] ? next : level[t];
    }
    for (size_t t = 0; t < kLanes; ++t) {
      qq[t] += w[i] * (level[t] * level[t]);
      xq[t] += w[i] * (x[i] * level[t]);
    }
  }
  size_t best = 0;
  for (size_t t = 1; t < kLanes; ++t) {
    if (xq[t] * xq[t] * qq[best] > xq[best] * xq[best] * qq[t]) best = t;
  }
  if (qq[best] == 0.0F) return {};
  return {xq[best] / qq[best], xq[best] * xq[best] / qq[best]};
}

}  // namespace

void assign_codes(const float* x, int n, float scale, const int8_t* codebook, uint8_t* codes) noexcept {
  const std::array<float, kCodes - 1> middles = middles_of(codebook);
  const float quotient = 1.0F / scale;
  const float inverse = std::isfinite(quotient) ? quotient : 0.0F;
  for (int i = 0; i < n; ++i) {
    const float value = x[i] * inverse;
    int code = 0;
    for (const float middle : middles) code += value > middle ? 1 : 0;
    codes[i] = static_cast<uint8_t>(code);
  }
}

float codebook_error(const float* x, const float* w, int n, float scale, const int8_t* codebook) noexcept {
  std::array<uint8_t, kCount> codes;
  assign_codes(x, n, scale, codebook, codes.data());
  float error = 0.0F;
  for (int i = 0; i < n; ++i) {
    const float distance = scale * static_cast<float>(codebook[codes[static_cast<size_t>(i)]]) - x[i];
    error += w[i] * (distance * distance);
  }
  return error;
}

CodebookSums codebook_sums(const float* x, const float* w, int n, const uint8_t* codes,
                           const int8_t* codebook) noexcept {
  CodebookSums sums;
  for (int i = 0; i < n; ++i) {
    const auto level = static_cast<float>(codebook[codes[i]]);
    sums.xq += w[i] * (x[i] * level);
    sums.qq += w[i] * (level * level);
  }
  return sums;
}

float fit_codebook_32(const float* x, const float* w, const int8_t* codebook) noexcept {
  float low = 0.0F;
  float high = 0.0F;
  for (int i = 0; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const float peak = -low > high ? low : high;
  if (peak == 0.0F) return 0.0F;
  const auto end = [&](int code) { return static_cast<float>(codebook[code]); };
  const Candidate first = best_around(x, w, peak, end(0), end(0) - end(1), codebook);
  const Candidate last = best_around(x, w, peak, end(kCodes - 1), end(kCodes - 1) - end(kCodes - 2), codebook);
  float scale = first.gain >= last.gain ? first.scale : last.scale;

  std::array<uint8_t, kCount> codes;
  for (int round = 0; round < 2; ++round) {
    assign_codes(x, kCount, scale, codebook, codes.data());
    const CodebookSums sums = codebook_sums(x, w, kCount, codes.data(), codebook);
    if (sums.qq == 0.0F) break;
    scale = sums.xq / sums.qq;
  }
  return scale;
}

}  // namespace inferno
