// The activation functions of MLPs and gates, to full f32 precision.
#pragma once

#include "backend/op_args.h"

namespace inferno::cuda {

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}
__device__ __forceinline__ float softplus(float x) {
  return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x)));
}

inline constexpr float kActivationClamp = 7;  // of clamped_silu

__device__ __forceinline__ float activate(inferno::Activation activation, float x) {
  switch (activation) {
    case inferno::Activation::silu:
      return x / (1.0F + expf(-x));
    case inferno::Activation::gelu_tanh:  // (1 + tanh(u)) / 2 is sigmoid(2 u)
      return x * sigmoid(1.5957691216F * (x + 0.044715F * x * x * x));
    case inferno::Activation::gelu_erf:
      return 0.5F * x * erfcf(-x * 0.70710678119F);
    case inferno::Activation::relu_squared:
      return x > 0 ? x * x : 0.0F;
    case inferno::Activation::clamped_silu: {
      const float y = x > kActivationClamp ? kActivationClamp : x;
      return y * sigmoid(1.702F * y);
    }
    case inferno::Activation::sigmoid:
      return sigmoid(x);
    default:
      return softplus(x);
  }
}
// f(x) * factor
__device__ __forceinline__ float gated(inferno::Activation activation, float x, float factor) {
  if (activation == inferno::Activation::clamped_silu) {
    factor = (factor < -kActivationClamp  ? -kActivationClamp
              : factor > kActivationClamp ? kActivationClamp
                                          : factor) +
             1;
  }
  return activate(activation, x) * factor;
}

}  // namespace inferno::cuda
