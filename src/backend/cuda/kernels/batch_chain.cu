// Launches of the products between two attentions.
#include <algorithm>
#include <iterator>

#include "backend/cuda/kernels/batch_chain.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"

namespace inferno::cuda {
namespace {

// The kernel's number of tokens for so many.
template <typename Visit>
auto with_chain_tokens(int tokens, Visit&& visit) {
  if (tokens <= 64) return visit.template operator()<64>();
  return visit.template operator()<kMaxChainTokens>();
}

// How the products are cut; the maps are not made.
template <int kTokens>
ChainParams cut(const BatchChain& p) {
  using Tiles = ChainTiles<kTokens>;
  ChainParams a;
  a.p = p;
  a.steps[kOutput] = p.queries / 2 / kChainStep;
  a.steps[kGateUp] = a.steps[kHeads] = p.width / kChainStep;
  a.steps[kDown] = p.middle / 2 / kChainStep;
  a.pairs[kOutput] = a.pairs[kDown] = divide_up(p.width, kChainRows) * 4;
  a.pairs[kGateUp] = p.middle / Tiles::kGateRows * Tiles::kHalves / 2;
  for (const BatchChain::Weight& w : p.head) a.pairs[kHeads] += w.rows / Tiles::kHeadRows * Tiles::kHalves / 2;
  return a;
}

// Whether all blocks run at the same time: they wait for each other. All GPUs of a process are alike.
template <int kTokens>
bool run_at_once() {
  static const bool kRun = [] {
    const auto kernel = batch_chain_kernel<kTokens>;
    constexpr int kBytes = ChainTiles<kTokens>::kBytes;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kChainBlocks);
    config.blockDim = dim3(kChainThreads);
    config.dynamicSmemBytes = kBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    const bool known =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
    if (!known) (void)cudaGetLastError();
    return known && 2 * clusters >= kChainBlocks;
  }();
  return kRun;
}

template <int kTokens>
bool fits(const BatchChain& p) {
  using Tiles = ChainTiles<kTokens>;
  if (p.middle % (2 * Tiles::kGateRows) != 0) return false;
  for (const BatchChain::Weight& w : p.head) {
    if (w.rows % (2 * Tiles::kHeadRows) != 0) return false;
  }
  const ChainParams a = cut<kTokens>(p);
  return std::all_of(std::begin(a.pairs), std::end(a.pairs), [](int pairs) { return 2 * pairs <= kChainBlocks; }) &&
         run_at_once<kTokens>();
}

template <int kTokens>
bool launch_chain(const LaunchContext& c, const BatchChain& p) {
  using Tiles = ChainTiles<kTokens>;
  ChainParams a = cut<kTokens>(p);
  const auto map_w = [&](const BatchChain::Weight& w, int k, int rows, int i) {
    return map_row_pairs(w.w, DType::bf16, w.rows, k, int64_t{k} * 2, rows, &a.w[i]);
  };
  const auto map_gate = [&](const BatchChain::Weight& w, int i) {
    return map_rows(w.w, DType::bf16, w.rows, p.width, int64_t{p.width} * 2, Tiles::kGateRows, &a.w[i]);
  };
  const auto map_x = [&](const void* x, int k, int phase) {
    return map_row_pairs(x, DType::bf16, p.tokens, k, int64_t{k} * 2, Tiles::kQuarter, &a.x[phase]);
  };
  const auto map_shared_x = [&](int phase) {
    return map_rows(p.normed_x, DType::bf16, p.tokens, p.width, int64_t{p.width} * 2, Tiles::kTileTokens, &a.x[phase]);
  };
  bool mapped = map_x(p.attended, p.queries, kOutput) && map_shared_x(kGateUp) &&
                map_x(p.middle_rows, p.middle, kDown) && map_w(p.output, p.queries, kChainRows, kOutput) &&
                map_gate(p.gate, kGateUp) && map_gate(p.up, kChainPhases) && map_w(p.down, p.middle, kChainRows, kDown);
  if (p.head[0].rows > 0) {
    mapped = mapped && map_shared_x(kHeads) && map_w(p.head[0], p.width, Tiles::kHeadRows, kHeads) &&
             map_w(p.head[1], p.width, Tiles::kHeadRows, kChainPhases + 1) &&
             map_w(p.head[2], p.width, Tiles::kHeadRows, kChainPhases + 2);
  }
  if (!mapped) return false;
  launch(c, {dim3(kChainBlocks), dim3(kChainThreads), Tiles::kBytes, 2}, batch_chain_kernel<kTokens>, a);
  return true;
}

}  // namespace

bool batch_chain_fits(const LaunchContext& c, const BatchChain& p) {
  return c.hopper && p.tokens >= kLeastChainTokens && p.tokens <= kMaxChainTokens && p.width % kChainStep == 0 &&
         p.queries % (2 * kChainStep) == 0 && p.middle % (2 * kChainStep) == 0 && encode_tiled() != nullptr &&
         with_chain_tokens(p.tokens, [&]<int kTokens>() { return fits<kTokens>(p); });
}

bool launch_batch_chain(const LaunchContext& c, const BatchChain& p) {
  return with_chain_tokens(p.tokens, [&]<int kTokens>() { return launch_chain<kTokens>(c, p); });
}

}  // namespace inferno::cuda
