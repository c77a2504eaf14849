// OpRunner's experts: the router's product, the choice, the products of chosen experts, their sum.
//
// How many pairs an expert has is known on the device alone: grids are as large as they may have to be, so that a step
// can be captured into a graph. One token's pairs are multiplied one by one; those of more tokens are sorted by expert,
// so that a weight is read once for several.
#include <algorithm>

#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"

namespace inferno::cuda {
namespace {

// Tokens at a time: what experts make of them is in memory at once.
constexpr int64_t kExpertTokens = 1024;
constexpr int64_t kAlignment = 256;

}  // namespace

struct OpRunner::ExpertRows {
  int64_t first = 0;  // token
  int64_t tokens = 0;
  const float* h = nullptr;       // [all tokens, d]
  const float* logits = nullptr;  // [all tokens, experts]
  int32_t* ids = nullptr;         // [kExpertTokens, used]
  float* weights = nullptr;       // the same
  PairLists lists;
  float* gate = nullptr;  // [kExpertTokens * used, ffn]
  float* up = nullptr;    // the same
  float* out = nullptr;   // [kExpertTokens * used, d]
};

int OpRunner::pair_columns(const Weight& w, int64_t tokens) const {
  return tokens > 1 && pair_product_fits(w.dtype(), w.cols(), kPairColumns) ? kPairColumns : 1;
}

void OpRunner::run(const MoeMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t experts = a.router->rows();
  const int64_t ffn = a.up->shape()[1];
  const int64_t pairs = std::min(tokens, kExpertTokens) * a.routing.used;
  ExpertRows rows;
  rows.h = normed_rows(a.x, a.norm, a.eps);

  int64_t bytes = 0;
  const auto place = [&](int64_t size) {
    const int64_t at = bytes;
    bytes += round_up(size, kAlignment);
    return at;
  };
  const int64_t logits_at = place(f32_rows_bytes(tokens, experts));
  const int64_t ids_at = place(pairs * int64_t{sizeof(int32_t)});
  const int64_t weights_at = place(pairs * int64_t{sizeof(float)});
  const int64_t count_at = place(sizeof(int32_t));
  const int64_t tiles_at = place(max_tiles(pairs, experts, kPairColumns) * int64_t{sizeof(PairTile)});
  const int64_t pairs_at = place(pairs * int64_t{sizeof(int32_t)});
  auto* memory = static_cast<char*>(region(Region::routing, bytes));
  auto* logits = reinterpret_cast<float*>(memory + logits_at);
  rows.logits = logits;
  rows.ids = reinterpret_cast<int32_t*>(memory + ids_at);
  rows.weights = reinterpret_cast<float*>(memory + weights_at);
  rows.lists = {.count = reinterpret_cast<int32_t*>(memory + count_at),
                .tiles = reinterpret_cast<PairTile*>(memory + tiles_at),
                .pairs = reinterpret_cast<int32_t*>(memory + pairs_at)};
  const auto floats = [&](Region r, int64_t count) {
    return static_cast<float*>(region(r, count * size_of(DType::f32)));
  };
  rows.gate = floats(Region::expert_gate, pairs * ffn);
  rows.up = floats(Region::expert_up, pairs * ffn);
  rows.out = floats(Region::expert_out, pairs * a.x.cols());

  // The router reads h, or x through a norm of its own.
  const bool own_norm = a.router_norm != nullptr;
  Linear router = device::rows_of(a.x, own_norm ? a.router_norm : nullptr, a.eps);
  if (!own_norm) router.x = rows.h;
  router.add(a.router, a.router_bias, logits);
  project(router);
  for (rows.first = 0; rows.first < tokens; rows.first += kExpertTokens) {
    rows.tokens = std::min(kExpertTokens, tokens - rows.first);
    run_experts(a, rows);
  }
}

void OpRunner::run_experts(const MoeMlpArgs& a, const ExpertRows& rows) {
  const int64_t d = a.x.cols();
  const auto experts = static_cast<int>(a.router->rows());
  const int64_t ffn = a.up->shape()[1];
  const int used = a.routing.used;
  const int64_t pairs = rows.tokens * used;
  const auto at = [&](const float* data, int64_t cols) { return data == nullptr ? nullptr : data + rows.first * cols; };

  enqueue([&](const LaunchContext& c) {
    launch_route(c, {.logits = at(rows.logits, experts),
                     .selection_bias = vector_or_null(a.selection_bias),
                     .expert_scale = vector_or_null(a.expert_scale),
                     .routing = a.routing,
                     .tokens = rows.tokens,
                     .experts = experts,
                     .ids = rows.ids,
                     .weights = rows.weights});
  });
  if (rows.tokens > 1) {
    enqueue([&](const LaunchContext& c) { launch_sort_pairs(c, rows.ids, pairs, experts, kPairColumns, rows.lists); });
  }
  const auto multiply = [&](const Weight& w, const Weight* bias, PairProduct p) {
    p.w = on_device(&w).planes();
    p.dtype = w.dtype();
    p.rows = static_cast<int>(w.shape()[1]);
    p.k = static_cast<int>(w.cols());
    p.bias = vector_or_null(bias);
    p.ids = rows.ids;
    p.tokens = rows.tokens;
    p.slots = used;
    p.matrices = experts;
    p.lists = rows.lists;
    p.columns = pair_columns(w, rows.tokens);
    p.out_token = int64_t{used} * p.rows;
    p.out_slot = p.rows;
    enqueue([&](const LaunchContext& c) { launch_pair_product(c, p); });
  };
  const float* h = at(rows.h, d);
  if (a.gate != nullptr) multiply(*a.gate, a.bias[0], {.x = h, .x_token = d, .out = rows.gate});
  multiply(*a.up, a.bias[1], {.x = h, .x_token = d, .out = rows.up});
  const ActivateRows middle{.x = a.gate != nullptr ? rows.gate : rows.up,
                            .factor = a.gate != nullptr ? rows.up : nullptr,
                            .activation = a.activation,
                            .rows = pairs,
                            .cols = ffn,
                            .x_stride = ffn,
                            .factor_stride = ffn,
                            .out = rows.up};
  enqueue([&](const LaunchContext& c) { launch_activate(c, middle); });
  multiply(*a.down, a.bias[2], {.x = rows.up, .x_token = used * ffn, .x_slot = ffn, .out = rows.out});

  enqueue([&](const LaunchContext& c) {
    launch_expert_sum(c, {.parts = rows.out,
                          .weights = rows.weights,
                          .used = used,
                          .h = h,
                          .experts_norm = vector_or_null(a.experts_norm),
                          .shared = at(a.shared.f32(), d),
                          .shared_gate = vector_or_null(a.shared_gate),
                          .post_norm = vector_or_null(a.post_norm),
                          .eps = a.eps,
                          .residual = at(a.residual.f32(), d),
                          .residual_scale = a.residual_scale,
                          .out_scale = a.out_scale,
                          .tokens = rows.tokens,
                          .cols = d,
                          .out = a.out.f32() + rows.first * d});
  });
}

}  // namespace inferno::cuda
