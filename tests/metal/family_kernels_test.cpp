// Kernels of ops that only some families have, at shapes beyond those of op_cases.h: every type of weights, sizes of
// models, what no kernel has room for.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/factory.h"
#include "backend/metal/metal_backend.h"
#include "backend/op_fields.h"
#include "base/error.h"
#include "emulated_device.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

class MetalFamilies : public testing::Test {
 protected:
  void expect_definition(const OpImage& image) {
    const double limit = nmse_limit(image.record(), Numerics::definition);
    for (const FieldDifference& d : compare_written(image, run_on(*scalar_, image), run_on(backend_, image))) {
      EXPECT_FALSE(d.beyond(limit)) << d.field << ": nmse " << d.nmse << " of " << limit << ", at " << d.worst << " "
                                    << d.worst_tested << " instead of " << d.worst_reference;
    }
  }
  // What planning the op says.
  std::string refusal(const OpImage& image) {
    EXPECT_FALSE(backend_.supports(image.record()));
    std::string message;
    backend_.begin_step(StepMode::plan);
    try {
      call_op(backend_, image.record());
    } catch (const Error& error) {
      message = error.what();
    }
    backend_.end_step();
    return message;
  }

  metal::MetalBackend backend_{std::make_unique<test::EmulatedDevice>()};
  std::unique_ptr<Backend> scalar_ = create_backend("scalar", {.fused = false});
};

class MetalFamiliesOfType : public MetalFamilies, public testing::WithParamInterface<DType> {};

TEST_P(MetalFamiliesOfType, ExpertsGiveWhatTheirDefinitionGives) {
  uint32_t seed = 1;
  for (const int64_t tokens : {1, 2, 19}) {
    SCOPED_TRACE(tokens);
    MoeShape shape{.tokens = tokens, .width = 256, .ffn = 256, .experts = 3};
    shape.weight = shape.down = GetParam();
    shape.routing.used = 2;
    expect_definition(moe_case(shape, seed++));
  }
}

TEST_P(MetalFamiliesOfType, MatricesOfHeadsGiveWhatTheirDefinitionGives) {
  for (const int32_t tokens : {1, 9}) {
    SCOPED_TRACE(tokens);
    expect_definition(head_linear_case(
        {.sequences = {{.queries = tokens}}, .heads = 3, .latent = 256, .kept = 21, .weight = GetParam()}, 7));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MetalFamiliesOfType, testing::ValuesIn(kWeightTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// As many as models have: tiles that are full, some that are not, and experts that nobody chose.
TEST_F(MetalFamilies, ManyExpertsGiveWhatTheirDefinitionGives) {
  for (const int64_t tokens : {1, 40}) {
    MoeShape shape{.tokens = tokens, .width = 32, .ffn = 16, .experts = 200};
    shape.routing = {.score = RouterScore::sigmoid, .used = 10, .scale = 2.5F, .groups = 8, .groups_used = 4};
    expect_definition(moe_case(shape, 8));
  }
}

TEST_F(MetalFamilies, AllPairsOfOneExpertGiveWhatTheirDefinitionGives) {
  MoeShape shape{.tokens = 25, .width = 32, .ffn = 16, .experts = 1, .shared = true, .shared_gate = true};
  shape.routing.used = 1;
  expect_definition(moe_case(shape, 9));
}

// Of rows of zeros a router's logits are all 0, and biases make the experts differ.
TEST_F(MetalFamilies, OfEqualExpertsTheFirstAreChosen) {
  const OpImage image = moe_case({.tokens = 2, .experts = 70, .bias = true, .residual_is_out = false}, 4);
  const auto run = [&](Backend& backend) {
    WeightCopies weights(backend);
    PlacedOp placed(image, backend, weights);
    auto args = placed.records()[0].args<MoeMlpArgs>();
    args.router_bias = nullptr;
    std::fill_n(args.x.f32(), args.x.elements(), 0.0F);
    for (const StepMode mode : {StepMode::plan, StepMode::run}) {
      backend.begin_step(mode);
      backend.moe_mlp(args);
      backend.end_step();
    }
    backend.synchronize();
    return std::vector<float>(args.out.f32(), args.out.f32() + args.out.elements());
  };
  const std::vector<float> expected = run(*scalar_);
  const std::vector<float> found = run(backend_);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

// Up to eight tokens, which the router's product adds up in the same order as one.
TEST_F(MetalFamilies, ATokensExpertsDoNotDependOnItsMates) {
  constexpr int64_t kTokens = 8;
  MoeShape shape{.tokens = kTokens, .width = 64, .ffn = 32, .experts = 3, .residual_is_out = false};
  shape.weight = shape.down = DType::q8_0;
  const OpImage image = moe_case(shape, 3);
  WeightCopies weights(backend_);
  PlacedOp placed(image, backend_, weights);
  placed.run();
  const auto args = placed.records()[0].args<MoeMlpArgs>();
  const std::vector<float> together(args.out.f32(), args.out.f32() + args.out.elements());
  const int64_t cols = args.x.cols();
  for (int64_t t = 0; t < kTokens; ++t) {
    MoeMlpArgs one = args;
    for (Tensor* rows : {&one.x, &one.out}) *rows = {rows->f32() + t * cols, Shape(1, cols)};
    backend_.moe_mlp(one);
    EXPECT_TRUE(std::equal(one.out.f32(), one.out.f32() + cols, together.begin() + t * cols)) << "token " << t;
  }
}

TEST_F(MetalFamilies, LatentRowsOfTheSizesOfModelsGiveWhatTheirDefinitionGives) {
  for (const DType kv : {DType::f32, DType::bf16}) {
    const LatentShape shape{.sequences = {{.cached = 5, .queries = 9}, {.cached = 70, .queries = 1}},
                            .heads = 3,
                            .latent = 512,
                            .kept = 128,
                            .rotated = 64,
                            .kv = kv};
    expect_definition(latent_store_case(shape, 10));
    const AttentionShape attention{.sequences = shape.sequences,
                                   .q_heads = 6,
                                   .kv_heads = 1,
                                   .head_dim = 576,
                                   .kv = kv,
                                   .v_head_dim = 512,
                                   .v_in_k = true};
    expect_definition(attention_case(attention, 11));
  }
}

TEST_F(MetalFamilies, HeadsOfEveryWidthGiveWhatTheirDefinitionGives) {
  for (const auto& [keys, values] : {std::pair{257, 8}, {8, 288}, {512, 512}, {576, 576}}) {
    SCOPED_TRACE(keys);
    for (const int32_t queries : {1, 10}) {
      expect_definition(attention_case({.sequences = {{.cached = 20, .queries = queries}, {.cached = 0, .queries = 2}},
                                        .q_heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = keys,
                                        .kv = DType::f16,
                                        .v_head_dim = values,
                                        .window = 9,
                                        .softcap = 3,
                                        .sinks = true},
                                       12));
    }
  }
}

TEST_F(MetalFamilies, StatesOfTheSizesOfModelsGiveWhatTheirDefinitionGives) {
  const std::vector<SequenceShape> sequences = {{.queries = 5}, {.cached = 11, .queries = 1}};
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    expect_definition(delta_net_case({.sequences = sequences, .k_heads = 1, .v_heads = 2, .head_dim = head_dim}, 13));
  }
  for (const int64_t state : {64, 128, 256}) {
    SCOPED_TRACE(state);
    expect_definition(
        mamba2_case({.sequences = sequences, .k_heads = 1, .v_heads = 2, .head_dim = 64, .state_size = state}, 14));
  }
}

TEST_F(MetalFamilies, WhatNoKernelHasRoomForIsRefusedInOneLineWhenTheStepIsPlanned) {
  const std::vector<SequenceShape> sequences = {{.cached = 2, .queries = 1}};
  EXPECT_EQ(refusal(attention_case({.sequences = sequences, .head_dim = 640}, 1)),
            "backend \"metal\" has no kernel for attention with heads of 640, which this model needs; choose another "
            "backend");
  const auto names = [&](const OpImage& image, std::string_view what) {
    const std::string message = refusal(image);
    EXPECT_NE(message.find(" with " + std::string(what) + ", which"), std::string::npos) << message;
  };
  names(moe_case({.width = 32, .ffn = 2, .experts = 1025}, 1), "1025 experts");
  MoeShape groups{.width = 32, .ffn = 2, .experts = 65};
  groups.routing.groups = 65;
  names(moe_case(groups, 1), "65 groups of experts");
  names(short_conv_case({.sequences = sequences, .taps = 9}, 1), "9 taps");
  names(delta_net_case({.sequences = sequences, .k_heads = 1, .v_heads = 1, .head_dim = 260}, 1), "heads of 260");
  names(delta_net_case({.sequences = sequences, .k_heads = 1, .v_heads = 1, .head_dim = 30}, 1), "heads of 30");
  names(mamba2_case({.sequences = sequences, .head_dim = 4, .state_size = 257}, 1), "a state of 257");
  names(mamba2_case({.sequences = sequences, .head_dim = 6}, 1), "heads of 6");
}

TEST_F(MetalFamilies, RanksExchangeNothing) {
  EXPECT_FALSE(backend_.supports(OpId::all_gather, DType::f32));
  EXPECT_FALSE(backend_.supports(OpId::pass_on, DType::f32));
}

}  // namespace
}  // namespace inferno
