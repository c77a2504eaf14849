// The activations of op_args.h.
#ifndef INFERNO_METAL_ACTIVATIONS_H
#define INFERNO_METAL_ACTIVATIONS_H
#include "common.h"

// Metal has no erf. Its error is below 1.5e-7 (Abramowitz and Stegun, 7.1.26).
inline float erf_of(float x) {
  float t = 1.0f / (1.0f + 0.3275911f * precise::fabs(x));
  float poly = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  float y = 1.0f - poly * precise::exp(-x * x);
  return x < 0.0f ? -y : y;
}

inline float sigmoid(float x) {
  return 1.0f / (1.0f + precise::exp(-x));
}
// Metal has no log1p. What 1 + y lost of y is made good by the quotient.
inline float log1p_of(float y) {
  float sum = 1.0f + y;
  return sum == 1.0f ? y : precise::log(sum) * (y / (sum - 1.0f));
}
inline float softplus(float x) {
  return max(x, 0.0f) + log1p_of(precise::exp(-precise::fabs(x)));
}

// The enum Activation, whose values these are.
enum ActivationKind { kSilu, kGeluTanh, kGeluErf, kReluSquared, kClampedSilu, kSigmoid, kSoftplus };

inline float activation_of(uint activation, float x) {
  if (activation == kSilu) return x / (1.0f + precise::exp(-x));
  if (activation == kGeluTanh) {
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + precise::tanh(inner));
  }
  if (activation == kGeluErf) return 0.5f * x * (1.0f + erf_of(x * 0.7071067811865475f));
  if (activation == kReluSquared) return x > 0.0f ? x * x : 0.0f;
  if (activation == kClampedSilu) {
    float cut = min(x, 7.0f);
    return cut / (1.0f + precise::exp(-1.702f * cut));
  }
  if (activation == kSigmoid) return sigmoid(x);
  return softplus(x);
}
#endif
