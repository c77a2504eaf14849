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

// By the values of the enum Activation.
inline float activation_of(uint activation, float x) {
  if (activation == 0) return x / (1.0f + precise::exp(-x));
  if (activation == 1) {
    float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + precise::tanh(inner));
  }
  if (activation == 2) return 0.5f * x * (1.0f + erf_of(x * 0.7071067811865475f));
  if (activation == 3) return x > 0.0f ? x * x : 0.0f;
  if (activation == 4) {
    float cut = min(x, 7.0f);
    return cut / (1.0f + precise::exp(-1.702f * cut));
  }
  if (activation == 5) return 1.0f / (1.0f + precise::exp(-x));
  return max(x, 0.0f) + precise::log(1.0f + precise::exp(-precise::fabs(x)));
}
#endif
