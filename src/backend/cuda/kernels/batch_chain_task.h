// The products of a layer that lie between two attentions, of 33 to 128 tokens, as one kernel (batch_chain.cuh).
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

inline constexpr int kLeastChainTokens = 33;
inline constexpr int kMaxChainTokens = 128;
// The same of quantized weights, which are unpacked before.
inline constexpr int kLeastUnpackedTokens = 96;
// Rows of results of which a product gives each token's sum of squares to the next one.
inline constexpr int kChainSquaresRows = 64;
inline constexpr int kChainCounters = 8;

// Four products, each but the last an input of the next:
//   x += attended * output^T;  middle = silu(norm(x) gate^T) * (norm(x) up^T);  x += middle * down^T;
//   heads = norm(x) * [q k v]^T, for the next layer's attention, if there is one.
struct BatchChain {
  struct Weight {
    const void* w = nullptr;  // bf16 [rows, its input]
    int rows = 0;
  };
  int tokens = 0;
  int width = 0;    // of x
  int queries = 0;  // of attended
  int middle = 0;
  const void* attended = nullptr;  // bf16 [tokens, queries]
  Weight output, gate, up, down;
  Weight head[3];                     // none: no rows
  bool fresh_weights = false;         // weights are not read before the wait for the kernel before, which unpacks them
  const float* mlp_norm = nullptr;    // [width]
  const float* heads_norm = nullptr;  // [width], or null where there are no heads
  float mlp_eps = 0;
  float heads_eps = 0;
  float* x = nullptr;            // [tokens, width]
  void* normed_x = nullptr;      // bf16 [tokens, width]: x times the weights of the next norm
  float* squares = nullptr;      // [width / kChainSquaresRows, tokens]
  void* middle_rows = nullptr;   // bf16 [tokens, middle]
  void* heads = nullptr;         // bf16 [tokens, rows of head]
  uint32_t* counters = nullptr;  // kChainCounters, zero before and after the launch
};
[[nodiscard]] bool batch_chain_fits(const LaunchContext& c, const BatchChain& p);
// False: the driver cannot make a tensor map.
[[nodiscard]] bool launch_batch_chain(const LaunchContext& c, const BatchChain& p);

}  // namespace inferno::cuda
