// Launches of the products of a prompt's step.
#include "backend/cuda/kernels/prompt_product.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"

namespace inferno::cuda {
namespace {

using Result = PromptProduct::Result;

// Tiles of the weights' rows, by segment, and of tokens.
template <Result kResult>
int blocks_of(const PromptProduct& p, PromptParams* a) {
  using Tile = PromptTile<kResult>;
  a->token_tiles = divide_up(p.tokens, Tile::kTokens);
  for (int i = 0; i < p.segments; ++i) {
    const bool counts = i == 0 || kResult == Result::heads;
    a->first_tile[i + 1] = a->first_tile[i] + (counts ? divide_up(p.segment[i].rows, Tile::kOutRows) : 0);
  }
  return a->first_tile[p.segments] * a->token_tiles * (Tile::kSplits ? kPromptCluster : 1);
}

template <Result kResult, typename T, int kDim>
bool launch_typed(const LaunchContext& c, const PromptProduct& p) {
  using Tile = PromptTile<kResult>;
  PromptParams a;
  a.p = p;
  const int blocks = blocks_of<kResult>(p, &a);
  const int64_t stride = int64_t{p.k} * 2;
  bool mapped = map_rows(p.x, DType::bf16, p.tokens, p.k, stride, Tile::kTokens, &a.x);
  for (int i = 0; i < p.segments; ++i) {
    mapped = mapped && map_rows(p.segment[i].w, DType::bf16, p.segment[i].rows, p.k, stride, Tile::kOutRows, &a.w[i]);
  }
  if (!mapped) return false;
  launch(c,
         {dim3(static_cast<unsigned>(blocks)), dim3(kPromptThreads), Tile::kSharedBytes,
          Tile::kSplits ? kPromptCluster : 1},
         prompt_product_kernel<kResult, T, kDim>, a);
  return true;
}

template <typename T>
bool launch_heads(const LaunchContext& c, const PromptProduct& p) {
  return p.heads.kv.head_dim == 64 ? launch_typed<Result::heads, T, 64>(c, p)
                                   : launch_typed<Result::heads, T, 128>(c, p);
}

}  // namespace

bool prompt_product_fits(const LaunchContext& c, const PromptProduct& p) {
  if (!c.hopper || p.tokens < kLeastPromptTokens || p.tokens > kMaxPromptTokens || p.k % kPromptStep != 0) return false;
  if (encode_tiled() == nullptr) return false;
  for (int i = 0; i < p.segments; ++i) {
    if (p.segment[i].rows % kPromptSquaresRows != 0) return false;
  }
  // A multiprocessor has one block: of more, cuBLAS is faster.
  PromptParams a;
  switch (p.result) {
    case Result::heads:
      return narrow_q_supports(p.heads.kv, p.heads.rope) && blocks_of<Result::heads>(p, &a) <= c.sm_count;
    case Result::swiglu:
      return p.segment[0].rows == p.segment[1].rows && blocks_of<Result::swiglu>(p, &a) <= c.sm_count;
    default:
      return p.k >= 2 * kPromptCluster * kPromptStep && blocks_of<Result::residual>(p, &a) <= c.sm_count;
  }
}

bool launch_prompt_product(const LaunchContext& c, const PromptProduct& p) {
  switch (p.result) {
    case Result::heads:
      return p.heads.kv.dtype == DType::bf16 ? launch_heads<__nv_bfloat16>(c, p) : launch_heads<__half>(c, p);
    case Result::swiglu:
      return launch_typed<Result::swiglu, __nv_bfloat16, 128>(c, p);
    default:
      return launch_typed<Result::residual, __nv_bfloat16, 128>(c, p);
  }
}

}  // namespace inferno::cuda
