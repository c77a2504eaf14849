// Cases of the ops that few families have: inputs of layers, latent attention.
#include <algorithm>
#include <string>

#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

constexpr int64_t kInputLayers = 3;  // whose inputs are side by side

int64_t tokens_of(const LatentShape& shape) {
  int64_t tokens = 0;
  for (const SequenceShape& s : shape.sequences) tokens += s.queries;
  return tokens;
}

int32_t longest(const LatentShape& shape) {
  int32_t most = 0;
  for (const SequenceShape& s : shape.sequences) most = std::max(most, s.cached + s.queries);
  return most;
}

// Formats of several widths, with sizes that fit their blocks.
constexpr DType kLatentTypes[] = {DType::f32, DType::bf16, DType::q8_0, DType::q4_k};

}  // namespace

OpImage layer_input_case(const LayerInputShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  LayerInputArgs args{.x = d.normals({shape.tokens, shape.width}),
                      .gate = d.matrix("gate", shape.weight, shape.inputs, shape.width),
                      .activation = Activation::gelu_tanh,
                      .inputs = d.normals({shape.tokens, kInputLayers * shape.inputs}),
                      .first_column = shape.inputs,
                      .proj = d.matrix("proj", shape.weight, shape.width, shape.inputs),
                      .post_norm = d.vector("post_norm", shape.width),
                      .eps = 1e-6F,
                      .out_scale = shape.out_scale};
  args.out = shape.in_place ? args.x : d.output({shape.tokens, shape.width});
  image.add(args);
  return image;
}

OpImage latent_store_case(const LatentShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const int64_t row = shape.latent + shape.rotated;
  const AttentionShape attention{.sequences = shape.sequences,
                                 .q_heads = static_cast<int32_t>(shape.heads),
                                 .head_dim = static_cast<int32_t>(row),
                                 .page_size = 4,
                                 .kv = shape.kv,
                                 .v_head_dim = static_cast<int32_t>(shape.latent),
                                 .v_in_k = true};
  const auto [view, batch] = d.cache(attention, false, tokens_of(shape) > 2);
  image.add(LatentStoreArgs{.heads = d.normals({batch.tokens, shape.heads * (shape.kept + shape.rotated)}),
                            .latent = d.normals({batch.tokens, row}),
                            .norm = d.vector("norm", shape.latent),
                            .eps = 1e-6F,
                            .k_b = d.matrix("k_b", shape.weight, Shape(shape.heads, shape.latent, shape.kept)),
                            .rope = d.rope(longest(shape), shape.rotated, RopePairing::interleaved),
                            .kv = view,
                            .batch = batch,
                            .q = d.output({batch.tokens, shape.heads * row})});
  return image;
}

OpImage head_linear_case(const LatentShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const int64_t tokens = tokens_of(shape);
  image.add(HeadLinearArgs{.x = d.normals({tokens, shape.heads * shape.latent}),
                           .w = d.matrix("v_b", shape.weight, Shape(shape.heads, shape.kept, shape.latent)),
                           .out = d.output({tokens, shape.heads * shape.kept})});
  return image;
}

std::vector<OpCase> layer_input_cases(uint32_t seed) {
  std::vector<OpCase> cases;
  for (const DType type : kLatentTypes) {
    for (const int64_t tokens : {1, 7, 40}) {
      const bool wide = type == DType::q4_k;
      cases.push_back({std::string(dtype_name(type)) + ", " + std::to_string(tokens) + " tokens",
                       layer_input_case({.tokens = tokens,
                                         .width = wide ? 512 : 96,
                                         .inputs = wide ? 256 : 32,
                                         .weight = type,
                                         .out_scale = tokens == 7 ? 1.0F : 0.4F,
                                         .in_place = tokens != 40},
                                        seed++)});
    }
  }
  return cases;
}

std::vector<OpCase> latent_store_cases(uint32_t seed) {
  const std::vector<SequenceShape> mixed = mixed_batch(DType::f32, 32).sequences;
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& name, const LatentShape& shape) {
    cases.push_back({name, latent_store_case(shape, seed++)});
  };
  add("one token", {.sequences = {{.cached = 9, .queries = 1}}});
  add("odd sizes", {.sequences = mixed, .heads = 3, .latent = 45, .kept = 21, .rotated = 6});
  for (const DType type : kLatentTypes) {
    add(std::string(dtype_name(type)) + " weights",
        {.sequences = mixed, .heads = 2, .latent = 64, .kept = type == DType::q4_k ? 256 : 32, .weight = type});
  }
  for (const DType kv : {DType::bf16, DType::f16, DType::q8_0}) {
    add(std::string(dtype_name(kv)) + " cache", {.sequences = mixed, .kv = kv});
  }
  return cases;
}

std::vector<OpCase> head_linear_cases(uint32_t seed) {
  std::vector<OpCase> cases;
  for (const DType type : kLatentTypes) {
    for (const int32_t tokens : {1, 5, 33}) {
      cases.push_back({std::string(dtype_name(type)) + ", " + std::to_string(tokens) + " tokens",
                       head_linear_case({.sequences = {{.queries = tokens}},
                                         .heads = 3,
                                         .latent = type == DType::q4_k ? 256 : 64,
                                         .kept = 21,
                                         .weight = type},
                                        seed++)});
    }
  }
  return cases;
}

}  // namespace inferno
