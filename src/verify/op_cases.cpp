#include "verify/op_cases.h"

#include <cmath>

#include "verify/case_data.h"

namespace inferno {
namespace {

constexpr DType kCacheTypes[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0};

// A row length the format allows: odd where it may be.
int64_t odd_cols(DType dtype) {
  if (is_k_format(dtype)) return 512;
  return is_quantized(dtype) ? 160 : 172;
}

class CaseList {
 public:
  // build(data) returns the args; the image is made around them.
  template <typename Build>
  void add(std::string name, Build build) {
    OpImage image;
    CaseData data(image, static_cast<uint32_t>(cases_.size() + 1));
    image.add(build(data));
    cases_.push_back({std::move(name), std::move(image)});
  }
  void add_image(std::string name, OpImage image) { cases_.push_back({std::move(name), std::move(image)}); }
  [[nodiscard]] uint32_t seed() const { return static_cast<uint32_t>(cases_.size() + 1); }
  std::vector<OpCase> take() { return std::move(cases_); }

 private:
  std::vector<OpCase> cases_;
};

// Shapes of element-wise ops: below and above the size at which work is shared, and no multiple of any vector length.
constexpr Shape kMatrices[] = {Shape(1, 1), Shape(3, 7), Shape(5, 64), Shape(129, 257)};

template <typename Build>
void add_matrices(CaseList& list, Build build) {
  for (const Shape& shape : kMatrices) {
    list.add(to_string(shape), [&](CaseData& d) { return build(d, shape); });
  }
}

void add_extras(CaseList& list, OpId op) {
  for (OpCase& c : extra_cases(op, list.seed())) list.add_image(std::move(c.name), std::move(c.image));
}

// ---- one function per op, found by its args type

void build(CaseList& list, const AddArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return AddArgs{d.normals(s), d.normals(s), d.output(s)}; });
  list.add("row", [](CaseData& d) { return AddArgs{d.normals({5, 67}), d.normals(Shape(67)), d.output({5, 67})}; });
  list.add("in place", [](CaseData& d) {
    const Tensor a = d.normals({5, 67});
    return AddArgs{a, d.normals({5, 67}), a};
  });
}

void build(CaseList& list, const HadamardArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return HadamardArgs{d.normals(s), d.normals(s), d.output(s)}; });
  list.add("row",
           [](CaseData& d) { return HadamardArgs{d.normals({5, 67}), d.normals(Shape(67)), d.output({5, 67})}; });
}

void build(CaseList& list, const SiluArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return SiluArgs{d.normals(s, 4), d.output(s)}; });
}

void build(CaseList& list, const ActivateArgs& /*tag*/) {
  for (const Activation f : kAllActivations) {
    const std::string name = "activation " + std::to_string(static_cast<int>(f));
    list.add(name, [&](CaseData& d) {
      return ActivateArgs{.x = d.normals({129, 257}, 4), .activation = f, .out = d.output({129, 257})};
    });
    list.add(name + ", factor, in place", [&](CaseData& d) {
      const Tensor x = d.normals({3, 37}, 6);
      return ActivateArgs{.x = x, .factor = d.normals({3, 37}, 6), .activation = f, .out = x};
    });
  }
}

void build(CaseList& list, const SoftCapArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return SoftCapArgs{d.normals(s, 20), 15, d.output(s)}; });
}

void build(CaseList& list, const ScaleArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return ScaleArgs{d.normals(s), 0.37F, d.output(s)}; });
}

void build(CaseList& list, const AddScalarArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return AddScalarArgs{d.normals(s), -1.25F, d.output(s)}; });
}

void build(CaseList& list, const RsqrtElemArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return RsqrtElemArgs{d.positives(s), d.output(s)}; });
}

void build(CaseList& list, const SumSquaresAxisArgs& /*tag*/) {
  add_matrices(
      list, [](CaseData& d, const Shape& s) { return SumSquaresAxisArgs{d.normals(s), 1, d.output(Shape(s.rows()))}; });
  add_matrices(
      list, [](CaseData& d, const Shape& s) { return SumSquaresAxisArgs{d.normals(s), 0, d.output(Shape(s.cols()))}; });
}

void build(CaseList& list, const BroadcastRowScalarsArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) {
    return BroadcastRowScalarsArgs{d.normals(Shape(s.rows())), d.output(s)};
  });
}

void build(CaseList& list, const Transpose2dArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) {
    return Transpose2dArgs{d.normals(s), d.output(Shape(s.cols(), s.rows()))};
  });
}

void build(CaseList& list, const SoftmaxRowsArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) { return SoftmaxRowsArgs{d.normals(s, 5), d.output(s)}; });
  list.add("masked, in place", [](CaseData& d) {
    const Tensor x = d.normals({3, 37}, 5);
    for (int64_t c = 20; c < 37; ++c) x.f32()[c] = -INFINITY;
    return SoftmaxRowsArgs{x, x};
  });
}

void build(CaseList& list, const ReshapeDataArgs& /*tag*/) {
  add_matrices(list, [](CaseData& d, const Shape& s) {
    return ReshapeDataArgs{d.normals(s), d.output(Shape(s.cols(), s.rows()))};
  });
}

void build(CaseList& list, const MatmulArgs& /*tag*/) {
  constexpr int64_t kSizes[][3] = {{1, 1, 1}, {3, 5, 7}, {1, 64, 33}, {17, 129, 261}};
  for (const auto& [m, n, p] : kSizes) {
    list.add(to_string(Shape(m, n, p)), [&, m = m, n = n, p = p](CaseData& d) {
      return MatmulArgs{d.normals({m, n}), d.normals({n, p}), d.output({m, p})};
    });
  }
}

void build(CaseList& list, const GatherRowsArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const int64_t cols = odd_cols(dtype);
    list.add(std::string(dtype_name(dtype)), [&](CaseData& d) {
      return GatherRowsArgs{
          .table = d.matrix("table", dtype, 13, cols), .indices = d.ints({12, 0, 5, 5, 7}), .out = d.output({5, cols})};
    });
  }
  list.add("range", [](CaseData& d) {
    return GatherRowsArgs{.table = d.matrix("table", DType::q8_0, 13, 64), .first_row = 3, .out = d.output({9, 64})};
  });
}

void build(CaseList& list, const FillStrictUpperTriArgs& /*tag*/) {
  for (const int64_t offset : {0, 3, -2}) {
    list.add("offset " + std::to_string(offset),
             [&](CaseData& d) { return FillStrictUpperTriArgs{d.normals({7, 9}), -INFINITY, offset}; });
  }
}

void build(CaseList& list, const FillStrictLowerTriArgs& /*tag*/) {
  for (const int64_t offset : {0, 3, -2}) {
    list.add("offset " + std::to_string(offset),
             [&](CaseData& d) { return FillStrictLowerTriArgs{d.normals({7, 9}), -INFINITY, offset}; });
  }
}

void build(CaseList& list, const Copy2dFromColsArgs& /*tag*/) {
  list.add("middle", [](CaseData& d) { return Copy2dFromColsArgs{d.normals({5, 67}), 9, d.output({5, 33})}; });
  list.add("large", [](CaseData& d) { return Copy2dFromColsArgs{d.normals({129, 257}), 1, d.output({129, 255})}; });
}

void build(CaseList& list, const Copy2dIntoColsArgs& /*tag*/) {
  list.add("middle", [](CaseData& d) { return Copy2dIntoColsArgs{d.normals({5, 33}), 9, d.normals({5, 67})}; });
}

void build(CaseList& list, const RepeatRowAsMatrixArgs& /*tag*/) {
  list.add("tensor",
           [](CaseData& d) { return RepeatRowAsMatrixArgs{.x = d.normals(Shape(67)), .out = d.output({5, 67})}; });
  list.add("weight", [](CaseData& d) {
    return RepeatRowAsMatrixArgs{.weight_row = d.vector("row", 67, DType::f16), .out = d.output({5, 67})};
  });
}

void build(CaseList& list, const ApplyRopeArgs& /*tag*/) {
  for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
    for (const int32_t rotated : {64, 32}) {
      list.add(std::to_string(rotated) + " of 64", [&](CaseData& d) {
        return ApplyRopeArgs{d.normals({5, int64_t{3} * 64}), d.ints({0, 1, 40, 7, 7}), 64,
                             d.rope(41, rotated, pairing)};
      });
    }
  }
}

void build(CaseList& list, const ApplyRopeSingleRowArgs& /*tag*/) {
  list.add("8 wide", [](CaseData& d) {
    return ApplyRopeSingleRowArgs{d.normals(Shape(24)), 11, 8, d.rope(12, 8, RopePairing::interleaved)};
  });
}

void build(CaseList& list, const ConcatDim0Args& /*tag*/) {
  list.add("odd",
           [](CaseData& d) { return ConcatDim0Args{d.normals({3, 37}), d.normals({4, 37}), d.output({7, 37})}; });
}

void build(CaseList& list, const CopyRow2dArgs& /*tag*/) {
  list.add("last", [](CaseData& d) { return CopyRow2dArgs{d.normals({5, 67}), 4, d.output(Shape(67))}; });
}

void build(CaseList& list, const CopyContiguousIntoArgs& /*tag*/) {
  list.add("middle", [](CaseData& d) { return CopyContiguousIntoArgs{d.normals({3, 7}), 5, d.normals(Shape(40))}; });
}

void build(CaseList& list, const ArgmaxWithProbArgs& /*tag*/) {
  list.add("odd", [](CaseData& d) {
    return ArgmaxWithProbArgs{d.normals({3, 1001}, 4), d.output(Shape(3), DType::i32), d.output(Shape(3))};
  });
  list.add("the first of equals", [](CaseData& d) {
    const Tensor x = d.normals({1, 67});
    x.f32()[20] = x.f32()[61] = 9;
    return ArgmaxWithProbArgs{x, d.output(Shape(1), DType::i32), d.output(Shape(1))};
  });
}

AttentionShape values_unlike_keys(DType kv) {
  AttentionShape shape = mixed_batch(kv, 64);
  shape.v_head_dim = 32;
  return shape;
}

void build(CaseList& list, const KvStoreArgs& /*tag*/) {
  for (const DType dtype : kCacheTypes) {
    for (const bool padding : {false, true}) {
      list.add(std::string(dtype_name(dtype)) + (padding ? ", padding" : ""), [&](CaseData& d) {
        const auto [view, batch] = d.cache(mixed_batch(dtype, 64), false, padding);
        const Shape rows(batch.tokens, int64_t{view.kv_heads} * view.head_dim);
        return KvStoreArgs{d.normals(rows), d.normals(rows), view, batch};
      });
    }
  }
  list.add("values unlike keys", [](CaseData& d) {
    const auto [view, batch] = d.cache(values_unlike_keys(DType::f16), false);
    return KvStoreArgs{d.normals({batch.tokens, int64_t{view.kv_heads} * view.head_dim}),
                       d.normals({batch.tokens, int64_t{view.kv_heads} * view.value_dim()}), view, batch};
  });
}

void build(CaseList& list, const KvLoadArgs& /*tag*/) {
  for (const DType dtype : kCacheTypes) {
    for (const bool values : {false, true}) {
      list.add(std::string(dtype_name(dtype)), [&](CaseData& d) {
        const auto [view, batch] = d.cache(mixed_batch(dtype, 64), true);
        return KvLoadArgs{view, batch, 2, 1, values, d.output({20, 64})};
      });
    }
  }
  list.add("values unlike keys", [](CaseData& d) {
    const auto [view, batch] = d.cache(values_unlike_keys(DType::bf16), true);
    return KvLoadArgs{view, batch, 2, 1, true, d.output({20, 32})};
  });
}

void build(CaseList& list, const RouteArgs& /*tag*/) {
  for (int score = 0; score < kRouterScores; ++score) {
    for (const bool bias : {false, true}) {
      list.add("score " + std::to_string(score) + (bias ? ", bias" : ""), [&](CaseData& d) {
        return RouteArgs{
            .logits = d.normals({7, 33}, 2),
            .selection_bias = bias ? d.normals(Shape(33)) : Tensor{},
            .routing = {.score = static_cast<RouterScore>(score), .used = 5, .normalize = bias, .scale = 1.5F},
            .out = d.output({7, 33})};
      });
    }
  }
  list.add("all of them", [](CaseData& d) {
    return RouteArgs{.logits = d.normals({2, 4}), .routing = {.used = 4}, .out = d.output({2, 4})};
  });
}

void build(CaseList& list, const EmbedArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const int64_t cols = odd_cols(dtype);
    list.add(std::string(dtype_name(dtype)), [&](CaseData& d) {
      return EmbedArgs{d.matrix("token_embd.weight", dtype, 29, cols), d.ints_below(6, 29), d.output({6, cols})};
    });
  }
  list.add("scale", [](CaseData& d) {
    return EmbedArgs{.table = d.matrix("token_embd.weight", DType::q8_0, 29, 160),
                     .ids = d.ints_below(6, 29),
                     .out = d.output({6, 160}),
                     .scale = 12.5F};
  });
}

void build(CaseList& list, const RmsNormArgs& /*tag*/) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 64}, {5, 172}, {3, 1000}, {67, 256}}) {
    list.add(to_string(Shape(rows, cols)), [&, rows = rows, cols = cols](CaseData& d) {
      return RmsNormArgs{d.normals({rows, cols}), d.vector("norm", cols), 1e-6F, d.output({rows, cols})};
    });
  }
  list.add("per head, in place", [](CaseData& d) {
    const Tensor x = d.normals({3, 4 * 64});
    return RmsNormArgs{x, d.vector("q_norm", 64, DType::bf16), 1e-5F, x};
  });
  list.add("nearly zero", [](CaseData& d) {
    return RmsNormArgs{d.normals({2, 64}, 1e-8F), d.vector("norm", 64), 1e-6F, d.output({2, 64})};
  });
  list.add("no weight",
           [](CaseData& d) { return RmsNormArgs{.x = d.normals({5, 172}), .eps = 1e-6F, .out = d.output({5, 172})}; });
}

void build(CaseList& list, const LayerNormArgs& /*tag*/) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 64}, {5, 172}, {3, 1000}, {67, 384}}) {
    list.add(to_string(Shape(rows, cols)), [&, rows = rows, cols = cols](CaseData& d) {
      return LayerNormArgs{.x = d.normals({rows, cols}),
                           .weight = d.vector("norm", cols),
                           .bias = d.vector("bias", cols),
                           .eps = 1e-12F,
                           .out = d.output({rows, cols})};
    });
  }
  list.add("in place, no bias", [](CaseData& d) {
    const Tensor x = d.normals({3, 136});
    return LayerNormArgs{.x = x, .weight = d.vector("norm", 136, DType::bf16), .eps = 1e-5F, .out = x};
  });
}

void build(CaseList& list, const LinearArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const std::string name(dtype_name(dtype));
    const int64_t k = odd_cols(dtype);
    for (const int64_t tokens : {1, 2, 5, 33}) {
      list.add_image(name + ", " + std::to_string(tokens) + " tokens",
                     linear_case({.tokens = tokens, .k = k, .n = {67}, .weight = dtype}, list.seed()));
    }
    list.add_image(name + ", three weights, bias",
                   linear_case({.tokens = 3, .k = k, .n = {64, 24, 40}, .weight = dtype, .bias = true}, list.seed()));
    list.add_image(
        name + ", residual is out",
        linear_case({.tokens = 3, .k = k, .n = {50}, .weight = dtype, .residual = true, .residual_is_out = true},
                    list.seed()));
    list.add_image(name + ", swiglu, row subset",
                   linear_case({.tokens = 6, .k = k, .n = {50, 50}, .weight = dtype, .swiglu = true, .rows = {5, 0, 3}},
                               list.seed()));
  }
  list.add_image(
      "residual, bias",
      linear_case({.tokens = 2, .k = 64, .n = {9}, .weight = DType::f32, .bias = true, .residual = true}, list.seed()));
  add_extras(list, OpId::linear);
}

void build(CaseList& list, const QkvRopeStoreArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const int64_t width = odd_cols(dtype);
    list.add_image(
        std::string(dtype_name(dtype)) + " weights",
        qkv_case({.attention = mixed_batch(DType::f32, 32), .width = width, .weight = dtype, .qk_norm = true},
                 list.seed()));
  }
  for (const DType dtype : kCacheTypes) {
    list.add_image(std::string(dtype_name(dtype)) + " cache, bias", qkv_case({.attention = mixed_batch(dtype, 64),
                                                                              .width = 128,
                                                                              .weight = DType::q8_0,
                                                                              .bias = true,
                                                                              .pairing = RopePairing::interleaved},
                                                                             list.seed()));
  }
  list.add_image("decode, no norm, 8 wide, half rotates",
                 qkv_case({.attention = {.sequences = {{.cached = 9, .queries = 1}},
                                         .q_heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 8,
                                         .page_size = 32},
                           .width = 172,
                           .norm = false,
                           .partial_rotation = true},
                          list.seed()));
  add_extras(list, OpId::qkv_rope_store);
}

void build(CaseList& list, const AttentionArgs& /*tag*/) {
  for (const DType dtype : kCacheTypes) {
    const std::string name(dtype_name(dtype));
    for (const int32_t head_dim : {64, 96, 128}) {
      list.add_image(name + ", mixed, " + std::to_string(head_dim) + " wide",
                     attention_case(mixed_batch(dtype, head_dim), list.seed()));
    }
    list.add_image(name + ", one query at depth", attention_case({.sequences = {{.cached = 700, .queries = 1}},
                                                                  .q_heads = 4,
                                                                  .kv_heads = 2,
                                                                  .head_dim = 64,
                                                                  .page_size = 16,
                                                                  .kv = dtype},
                                                                 list.seed()));
    list.add_image(name + ", prompt over a span boundary",
                   attention_case({.sequences = {{.cached = 240, .queries = 37}},
                                   .q_heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 64,
                                   .page_size = 64,
                                   .kv = dtype},
                                  list.seed()));
  }
  list.add_image(
      "8 wide, no groups",
      attention_case(
          {.sequences = {{.cached = 3, .queries = 6}}, .q_heads = 8, .kv_heads = 8, .head_dim = 8, .page_size = 256},
          list.seed()));
  add_extras(list, OpId::attention);
}

void build(CaseList& list, const GatedMlpArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = is_k_format(dtype) ? 256 : odd_cols(dtype);
    for (const int64_t tokens : {1, 6}) {
      list.add_image(
          std::string(dtype_name(dtype)) + ", " + std::to_string(tokens) + " tokens",
          mlp_case(
              {.tokens = tokens, .width = k, .ffn = is_k_format(dtype) ? 512 : 2 * k, .weight = dtype, .down = dtype},
              list.seed()));
    }
  }
  list.add_image("mixed types, no norm, no residual", mlp_case({.tokens = 3,
                                                                .width = 256,
                                                                .ffn = 512,
                                                                .weight = DType::q4_k,
                                                                .down = DType::q6_k,
                                                                .norm = false,
                                                                .residual_is_out = false},
                                                               list.seed()));
  add_extras(list, OpId::gated_mlp);
}

void build(CaseList& list, const MoeMlpArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = is_k_format(dtype) ? 256 : odd_cols(dtype);
    for (const int64_t tokens : {1, 9}) {
      list.add_image(std::string(dtype_name(dtype)) + ", " + std::to_string(tokens) + " tokens",
                     moe_case({.tokens = tokens, .width = k, .ffn = k, .weight = dtype, .down = dtype}, list.seed()));
    }
  }
  add_extras(list, OpId::moe_mlp);
}

void add_all(CaseList& list, std::vector<OpCase> cases) {
  for (OpCase& c : cases) list.add_image(std::move(c.name), std::move(c.image));
}

void build(CaseList& list, const ShortConvArgs& /*tag*/) {
  add_all(list, short_conv_cases(list.seed()));
}

void build(CaseList& list, const DeltaNetArgs& /*tag*/) {
  add_all(list, delta_net_cases(list.seed()));
}

void build(CaseList& list, const Mamba2Args& /*tag*/) {
  add_all(list, mamba2_cases(list.seed()));
}
void build(CaseList& list, const LayerInputArgs& /*tag*/) {
  add_all(list, layer_input_cases(list.seed()));
}
void build(CaseList& list, const LatentStoreArgs& /*tag*/) {
  add_all(list, latent_store_cases(list.seed()));
}
void build(CaseList& list, const HeadLinearArgs& /*tag*/) {
  add_all(list, head_linear_cases(list.seed()));
}

void build(CaseList& list, const LogitsArgs& /*tag*/) {
  for (const DType dtype : kWeightTypes) {
    list.add_image(
        std::string(dtype_name(dtype)),
        logits_case({.tokens = 7, .rows = {0, 6, 3}, .width = odd_cols(dtype), .vocabulary = 301, .weight = dtype},
                    list.seed()));
  }
  list.add_image("one row", logits_case({.tokens = 1, .vocabulary = 1024}, list.seed()));
  add_extras(list, OpId::logits);
}

void build(CaseList& list, const SampleArgs& /*tag*/) {
  for (OpCase& c : sample_cases()) list.add_image(std::move(c.name), std::move(c.image));
}

void build(CaseList& list, const AllReduceArgs& /*tag*/) {
  list.add("one rank", [](CaseData& d) { return AllReduceArgs{.x = d.normals({3, 67})}; });
}

void build(CaseList& list, const PassOnArgs& /*tag*/) {
  list.add("one rank", [](CaseData& d) { return PassOnArgs{.x = d.normals({3, 67})}; });
}

void build(CaseList& list, const AllGatherArgs& /*tag*/) {
  list.add("one rank", [](CaseData& d) {
    return AllGatherArgs{.x = d.normals({3, 67}), .begins = d.ints({0, 67}), .out = d.output({3, 67})};
  });
}

}  // namespace

std::vector<OpCase> op_cases(OpId op) {
  CaseList list;
  switch (op) {
#define OP(name, Args)   \
  case OpId::name:       \
    build(list, Args{}); \
    break;
#include "backend/op_list.inc"
    default:
      break;
  }
  return list.take();
}

}  // namespace inferno
