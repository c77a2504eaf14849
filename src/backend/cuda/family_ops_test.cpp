// Ops that only some families have, at shapes beyond those of op_cases.h: every type of weights, several numbers of
// tokens, rows longer than a unit, steps that become graphs.
#include <gtest/gtest.h>

#include "backend/cuda/test_device.h"
#include "backend/factory.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

class FamilyOps : public testing::Test {
 protected:
  void SetUp() override {
    device_ = device_or_null();
    if (!device_) GTEST_SKIP() << "no GPU";
  }

  void expect_definition(const OpImage& image) {
    const double limit = nmse_limit(image.record(), Numerics::definition);
    const OpImage expected = run_on(*exact_, image);
    WeightCopies weights(*device_);
    PlacedOp placed(image, *device_, weights);
    // The second run of an op with a batch is captured, the third replayed.
    for (int run = 0; run < 3; ++run) {
      OpImage tested = image.clone();
      placed.reset();
      placed.run();
      placed.download(tested);
      for (const FieldDifference& d : compare_written(image, expected, tested)) {
        EXPECT_FALSE(d.beyond(limit)) << d.field << ", run " << run << ": nmse " << d.nmse << " of " << limit << ", at "
                                      << d.worst << " " << d.worst_tested << " instead of " << d.worst_reference;
      }
    }
  }

  std::unique_ptr<Backend> device_;
  std::unique_ptr<Backend> exact_ = create_backend("scalar", {.fused = false});
};

class FamilyOpsOfType : public FamilyOps, public testing::WithParamInterface<DType> {};

TEST_P(FamilyOpsOfType, ExpertsGiveWhatTheirDefinitionGives) {
  uint32_t seed = 1;
  for (const int64_t tokens : {1, 2, 9, 33}) {
    SCOPED_TRACE(tokens);
    MoeShape shape{.tokens = tokens, .width = 512, .ffn = 256, .experts = 6};
    shape.weight = shape.down = GetParam();
    shape.routing.used = 2;
    expect_definition(moe_case(shape, seed++));
  }
  // Longer than a unit, with a tail; rows that no block has all of.
  MoeShape shape{.tokens = 3, .width = 2304, .ffn = 1280, .experts = 4};
  shape.weight = shape.down = GetParam();
  expect_definition(moe_case(shape, seed++));
}

TEST_P(FamilyOpsOfType, MatricesOfHeadsGiveWhatTheirDefinitionGives) {
  for (const int32_t tokens : {1, 6, 40}) {
    SCOPED_TRACE(tokens);
    const LatentShape shape{
        .sequences = {{.queries = tokens}}, .heads = 5, .latent = 512, .kept = 192, .weight = GetParam()};
    expect_definition(head_linear_case(shape, 7));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FamilyOpsOfType, testing::ValuesIn(kWeightTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// As many as models have, in tiles that are full and in some that are not.
TEST_F(FamilyOps, ManyExpertsGiveWhatTheirDefinitionGives) {
  for (const int64_t tokens : {1, 64}) {
    MoeShape shape{.tokens = tokens, .width = 64, .ffn = 32, .experts = 512};
    shape.routing = {.score = RouterScore::sigmoid, .used = 10, .scale = 2.5F, .groups = 8, .groups_used = 4};
    expect_definition(moe_case(shape, 8));
  }
}

// More tokens than experts work on at a time.
TEST_F(FamilyOps, ManyTokensOfExpertsGiveWhatTheirDefinitionGives) {
  MoeShape shape{.tokens = 1100, .width = 64, .ffn = 32, .experts = 8, .shared = true, .shared_gate = true};
  expect_definition(moe_case(shape, 9));
}

TEST_F(FamilyOps, LatentRowsOfTheSizesOfModelsGiveWhatTheirDefinitionGives) {
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

TEST_F(FamilyOps, StatesOfTheSizesOfModelsGiveWhatTheirDefinitionGives) {
  const std::vector<SequenceShape> sequences = {{.queries = 20}, {.cached = 11, .queries = 1}};
  expect_definition(short_conv_case({.sequences = sequences, .channels = 2048, .in_place = true}, 12));
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    expect_definition(delta_net_case({.sequences = sequences, .k_heads = 2, .v_heads = 4, .head_dim = head_dim}, 13));
  }
  for (const int64_t state : {64, 128, 256}) {
    SCOPED_TRACE(state);
    expect_definition(
        mamba2_case({.sequences = sequences, .k_heads = 2, .v_heads = 4, .head_dim = 64, .state_size = state}, 14));
  }
}

}  // namespace
}  // namespace inferno
