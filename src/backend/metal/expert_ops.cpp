// OpEncoder's experts: the router's product, the choice, the products of chosen experts, their sum.
//
// How many pairs of token and expert an expert has is known on the GPU alone: grids are as large as they may have to
// be, so that commands can be kept. One token's pairs are multiplied one by one; those of more tokens are sorted by
// expert, so that a weight is read once for several.
#include <algorithm>

#include "backend/metal/op_encoder.h"
#include "backend/metal/op_support.h"

namespace inferno::metal {
namespace {

// Tiles of kFewTokens pairs at most, when every expert's last one may be short.
int64_t most_tiles(int64_t pairs, int64_t experts) {
  return std::min(pairs, pairs / kFewTokens + experts);
}

}  // namespace

bool OpEncoder::op(const MoeMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t d = a.x.cols();
  const int64_t experts = a.router->rows();
  const int64_t ffn = a.up->shape()[1];
  const int64_t used = a.routing.used;
  const int64_t pairs = tokens * used;
  const int64_t tiles = most_tiles(pairs, experts);
  const Binding h = input_of(a.x, a.norm, a.eps);

  // Logits, ids and weights of the chosen, sorted pairs, tiles of three numbers each, their number.
  const Binding routing = floats(Region::routing, tokens * experts + 3 * pairs + 3 * tiles + 1);
  int64_t at = 0;
  const auto part = [&](int64_t count) {
    Binding binding = from(routing, at);
    binding.bytes = count * int64_t{sizeof(float)};
    at += count;
    return binding;
  };
  const Binding logits = part(tokens * experts);
  const Binding ids = part(pairs);
  const Binding weights = part(pairs);
  PairRows rows{.tokens = tokens, .slots = used, .ids = ids, .most_tiles = tiles};
  rows.pairs = part(pairs);
  rows.tiles = part(3 * tiles);
  rows.tile_count = part(1);

  // The router reads h, or x through a norm of its own.
  const Binding read_by_router = a.router_norm != nullptr ? input_of(a.x, a.router_norm, a.eps, Region::third) : h;
  multiply(*a.router, read_by_router, tokens, a.router_bias, {}, {}, logits);
  const RouteArgs choice{.experts = u32(experts),
                         .used = u32(used),
                         .score = static_cast<uint32_t>(a.routing.score),
                         .normalize = a.routing.normalize,
                         .groups = u32(a.routing.groups),
                         .groups_used = u32(a.routing.groups_used),
                         .has_selection_bias = a.selection_bias != nullptr,
                         .has_expert_scale = a.expert_scale != nullptr,
                         .scale = a.routing.scale,
                         .logit_scale = a.routing.logit_scale};
  dispatch({.kernel = Kernel::route}, {.x = u32(tokens)}, kSimdWidth, choice,
           {logits, in(a.selection_bias), in(a.expert_scale), written(ids), written(weights)});
  if (tokens > 1) {
    const SortPairsArgs sorting{.pairs = u32(pairs), .experts = u32(experts)};
    dispatch({.kernel = Kernel::sort_pairs}, {}, blocks(experts, kSimdWidth) * kSimdWidth, sorting,
             {ids, written(rows.tile_count), written(rows.tiles), written(rows.pairs)});
  }

  const auto multiply_experts = [&](const Weight& weight, const Weight* bias, Binding x, int64_t x_token,
                                    int64_t x_slot, Binding out) {
    rows.bias = bias;
    rows.x = x;
    rows.x_token = x_token;
    rows.x_slot = x_slot;
    rows.out = out;
    rows.out_slot = weight.shape()[1];
    rows.out_token = used * rows.out_slot;
    multiply_pairs(weight, rows);
  };
  const Binding up = floats(Region::first, pairs * ffn);
  multiply_experts(*a.up, a.bias[1], h, d, 0, up);
  if (a.gate != nullptr) {
    const Binding gate = floats(Region::second, pairs * ffn);
    multiply_experts(*a.gate, a.bias[0], h, d, 0, gate);
    activate(a.activation, gate, up, {.count = 1, .cols = pairs * ffn}, up);
  } else {
    activate(a.activation, up, {}, {.count = 1, .cols = pairs * ffn}, up);
  }
  const Binding parts = floats(Region::experts, pairs * d);
  multiply_experts(*a.down, a.bias[2], up, used * ffn, ffn, parts);

  const bool has_shared = !a.shared.empty();
  const ExpertSumArgs sum{.cols = u32(d),
                          .used = u32(used),
                          .has_experts_norm = a.experts_norm != nullptr,
                          .has_shared = has_shared,
                          .has_shared_gate = has_shared && a.shared_gate != nullptr,
                          .has_post_norm = a.post_norm != nullptr,
                          .has_residual = !a.residual.empty(),
                          .eps = a.eps,
                          .residual_scale = a.residual_scale,
                          .out_scale = a.out_scale};
  dispatch({.kernel = Kernel::expert_sum}, {.x = u32(tokens)}, row_threads(d), sum,
           {written(parts), weights, h, in(a.experts_norm), in(a.shared), in(a.shared_gate), in(a.post_norm),
            in(a.residual), out(a.out)});
  return true;
}

}  // namespace inferno::metal
