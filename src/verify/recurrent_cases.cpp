// Cases of the ops that carry a state from token to token.
#include <span>

#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

int64_t tokens_of(const std::vector<SequenceShape>& sequences) {
  int64_t tokens = 0;
  for (const SequenceShape& s : sequences) tokens += s.queries;
  return tokens;
}

// From heads that remember for long to some that soon forget.
const Weight* decays(OpImage& image, int64_t heads) {
  std::vector<float> values;
  for (int64_t h = 0; h < heads; ++h) values.push_back(-0.05F - 0.3F * static_cast<float>(h));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return image.weight("a", DType::f32, Shape(heads), {bytes.begin(), bytes.end()});
}

}  // namespace

OpImage short_conv_case(const RecurrentShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const Shape rows(tokens_of(shape.sequences), shape.channels);
  const auto [states, batch] = d.states(shape.sequences, (shape.taps - 1) * shape.channels);
  ShortConvArgs args{.x = d.normals(rows),
                     .weight = d.vector("conv", shape.channels * shape.taps),
                     .silu = shape.silu,
                     .state = states,
                     .batch = batch};
  if (shape.bias) args.bias = d.vector("conv_bias", shape.channels);
  if (shape.gates) {
    args.factor = d.normals(rows);
    args.gate = d.normals(rows);
  }
  args.out = shape.in_place ? args.x : d.output(rows);
  image.add(args);
  return image;
}

OpImage delta_net_case(const RecurrentShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const int64_t tokens = tokens_of(shape.sequences);
  const int64_t values = shape.v_heads * shape.head_dim;
  const auto [states, batch] = d.states(shape.sequences, values * shape.head_dim);
  image.add(DeltaNetArgs{.qkv = d.normals({tokens, 2 * shape.k_heads * shape.head_dim + values}),
                         .z = d.normals({tokens, values}),
                         .beta = d.normals({tokens, shape.v_heads}),
                         .alpha = d.normals({tokens, shape.v_heads}),
                         .a = decays(image, shape.v_heads),
                         .dt = d.vector("dt", shape.v_heads),
                         .norm = d.vector("norm", shape.head_dim),
                         .eps = 1e-6F,
                         .k_heads = shape.k_heads,
                         .grouped = shape.grouped,
                         .state = states,
                         .batch = batch,
                         .out = d.output({tokens, values})});
  return image;
}

OpImage mamba2_case(const RecurrentShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const int64_t tokens = tokens_of(shape.sequences);
  const int64_t inner = shape.v_heads * shape.head_dim;
  const auto [states, batch] = d.states(shape.sequences, inner * shape.state_size);
  image.add(Mamba2Args{.xbc = d.normals({tokens, inner + 2 * shape.k_heads * shape.state_size}),
                       .z = d.normals({tokens, inner}),
                       .dt = d.normals({tokens, shape.v_heads}),
                       .a = decays(image, shape.v_heads),
                       .dt_bias = d.vector("dt", shape.v_heads),
                       .skip = d.vector("d", shape.v_heads),
                       .norm = d.vector("norm", inner),
                       .eps = 1e-6F,
                       .groups = shape.k_heads,
                       .state = states,
                       .batch = batch,
                       .out = d.output({tokens, inner})});
  return image;
}

std::vector<OpCase> short_conv_cases(uint32_t seed) {
  const std::vector<SequenceShape> mixed = mixed_batch(DType::f32, 32).sequences;
  std::vector<OpCase> cases;
  const auto add = [&](const char* name, const RecurrentShape& shape) {
    cases.push_back({name, short_conv_case(shape, seed++)});
  };
  add("one token", {.sequences = {{.cached = 9, .queries = 1}}});
  add("mixed", {.sequences = mixed});
  add("the second token", {.sequences = {{.cached = 1, .queries = 1}}, .taps = 3});
  add("odd channels, gates, no activation",
      {.sequences = mixed, .channels = 203, .taps = 3, .silu = false, .gates = true});
  add("in place", {.sequences = mixed, .channels = 130, .in_place = true});
  add("two taps", {.sequences = mixed, .taps = 2, .in_place = true});
  add("the most taps", {.sequences = mixed, .taps = kMaxConvTaps});
  add("bias", {.sequences = mixed, .channels = 130, .bias = true, .in_place = true});
  add("more channels than are convolved at a time", {.sequences = mixed, .channels = 1100, .in_place = true});
  return cases;
}

std::vector<OpCase> delta_net_cases(uint32_t seed) {
  const std::vector<SequenceShape> mixed = mixed_batch(DType::f32, 32).sequences;
  std::vector<OpCase> cases;
  const auto add = [&](const char* name, const RecurrentShape& shape) {
    cases.push_back({name, delta_net_case(shape, seed++)});
  };
  add("one token", {.sequences = {{.cached = 9, .queries = 1}}});
  add("mixed", {.sequences = mixed});
  add("grouped heads", {.sequences = mixed, .grouped = true});
  add("a head each", {.sequences = mixed, .k_heads = 3, .v_heads = 3, .head_dim = 16});
  add("128 wide", {.sequences = {{.cached = 5, .queries = 3}}, .k_heads = 1, .v_heads = 2, .head_dim = 128});
  add("44 wide", {.sequences = mixed, .head_dim = 44});
  add("116 wide", {.sequences = mixed, .k_heads = 1, .v_heads = 2, .head_dim = 116});
  add("more tokens than are prepared at a time",
      {.sequences = {{.cached = 3, .queries = 70}}, .k_heads = 1, .v_heads = 1, .head_dim = 32});
  return cases;
}

std::vector<OpCase> mamba2_cases(uint32_t seed) {
  const std::vector<SequenceShape> mixed = mixed_batch(DType::f32, 32).sequences;
  std::vector<OpCase> cases;
  const auto add = [&](const char* name, const RecurrentShape& shape) {
    cases.push_back({name, mamba2_case(shape, seed++)});
  };
  add("one token", {.sequences = {{.cached = 9, .queries = 1}}});
  add("mixed", {.sequences = mixed});
  add("one group, more state than head", {.sequences = mixed, .k_heads = 1, .v_heads = 3, .state_size = 50});
  add("a group each, 12 wide", {.sequences = mixed, .k_heads = 3, .v_heads = 3, .head_dim = 12});
  add("128 of 64", {.sequences = {{.cached = 5, .queries = 3}}, .k_heads = 2, .head_dim = 64, .state_size = 128});
  add("more tokens than are prepared at a time",
      {.sequences = {{.cached = 3, .queries = 70}}, .k_heads = 1, .v_heads = 2, .head_dim = 36});
  return cases;
}

}  // namespace inferno
