// Dispatch of the head's products by their number of tokens (see head_product.cuh).
#include "backend/cuda/kernels/head_product.cuh"

namespace inferno::cuda {
namespace {

// Tokens of a block, padded.
int head_columns(int tokens) {
  for (const int n : {8, 16, 32}) {
    if (tokens <= n) return n;
  }
  return kMaxHeadTokens;
}

}  // namespace

int head_shared_bytes(const TileProduct& p) {
  int bytes = 0;
  (void)with_head_type(p, [&]<DType F>() {
    switch (head_columns(p.tokens)) {
      case 8:
        bytes = head_bytes<8, F>(p.k);
        break;
      case 16:
        bytes = head_bytes<16, F>(p.k);
        break;
      case 32:
        bytes = head_bytes<32, F>(p.k);
        break;
      default:
        bytes = head_bytes<kMaxHeadTokens, F>(p.k);
    }
  });
  return bytes;
}

void launch_head_product(const LaunchContext& c, const TileProduct& p) {
  switch (head_columns(p.tokens)) {
    case 8:
      return launch_head_8(c, p);
    case 16:
      return launch_head_16(c, p);
    case 32:
      return launch_head_32(c, p);
    default:
      return launch_head_64(c, p);
  }
}

}  // namespace inferno::cuda
