// Products of some hundreds of tokens with what follows them in a layer (prompt_product.cuh): shapes and types of
// weights against the ops' definitions, and whole steps against those of ops launched one by one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cuda/test_device.h"
#include "backend/factory.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

class PromptProducts : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    device_ = device_or_null();
    if (!device_) GTEST_SKIP() << "no GPU";
  }

  void expect_definition(const OpImage& image) {
    const OpImage expected = run_on(*exact_, image);
    const std::vector<OpRecord>& ops = image.records();
    const std::vector<double> limits = nmse_limits(ops, std::vector<Numerics>(ops.size(), Numerics::wide));
    for (const FieldDifference& d : compare_written(image, expected, run_on(*device_, image))) {
      EXPECT_FALSE(d.beyond(limits[d.op])) << d.field << ": nmse " << d.nmse << " of " << limits[d.op] << ", at "
                                           << d.worst << " " << d.worst_tested << " instead of " << d.worst_reference;
    }
  }

  std::unique_ptr<Backend> device_;
  std::unique_ptr<Backend> exact_ = create_backend("scalar", {.fused = false});
};

// Tokens and rows that fill the last tile and that do not; k in an odd number of steps.
TEST_P(PromptProducts, LinearsThatAddGiveWhatTheirDefinitionGives) {
  for (const int64_t k : {256, 768, 2304}) {
    for (const int64_t tokens : {129, 192, 333}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << k);
      LinearShape shape{.tokens = tokens, .k = k, .n = {288}, .weight = GetParam()};
      shape.residual = shape.residual_is_out = true;
      expect_definition(linear_case(shape, 1));
    }
  }
}

TEST_P(PromptProducts, GatedMlpsGiveWhatTheirDefinitionGives) {
  for (const int64_t tokens : {130, 256, 300}) {
    SCOPED_TRACE(tokens);
    expect_definition(mlp_case(
        {.tokens = tokens, .width = 512, .ffn = 1792, .weight = GetParam(), .down = GetParam(), .norm = true}, 2));
  }
}

// Sequences that decode beside prompts, both kinds of rotation, heads of both sizes.
TEST_P(PromptProducts, AttentionBlocksGiveWhatTheirDefinitionGives) {
  for (const int32_t head_dim : {64, 128}) {
    for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
      for (const DType kv : {DType::bf16, DType::f16}) {
        SCOPED_TRACE(testing::Message() << "heads of " << head_dim << ", cache of " << dtype_name(kv));
        const AttentionShape attention{.sequences = {{.cached = 70, .queries = 1},
                                                     {.cached = 200, .queries = 170},
                                                     {.cached = 3, .queries = 1},
                                                     {.cached = 0, .queries = 33}},
                                       .q_heads = 8,
                                       .kv_heads = 4,
                                       .head_dim = head_dim,
                                       .page_size = 64,
                                       .kv = kv};
        expect_definition(attention_block_case(
            {.attention = attention, .width = 512, .weight = GetParam(), .qk_norm = true, .pairing = pairing}, true,
            3));
      }
    }
  }
}

// Those of one token have a kernel of their own: without a cache, with more pairs than blocks, as many heads per group
// as it has room for and more, of one page and of several. The others are one prompt, several, or short ones.
TEST_P(PromptProducts, SequencesOfOneTokenBesidePromptsGiveWhatTheirDefinitionGives) {
  const auto with_decodes = [](int count, std::vector<SequenceShape> prompts) {
    std::vector<SequenceShape> all;
    for (int i = 0; i < count; ++i) all.push_back({.cached = i * 7 % 150, .queries = 1});
    all.insert(all.end(), prompts.begin(), prompts.end());
    return all;
  };
  struct Case {
    std::vector<SequenceShape> sequences;
    int32_t q_heads, kv_heads, head_dim, page_size;
    DType kv;
  };
  const Case cases[] = {
      {with_decodes(5, {{.cached = 130, .queries = 140}}), 8, 4, 128, 64, DType::bf16},
      {with_decodes(1, {{.cached = 0, .queries = 128}}), 8, 4, 128, 128, DType::bf16},
      {with_decodes(20, {{.cached = 0, .queries = 70}, {.cached = 5, .queries = 1}, {.cached = 40, .queries = 60}}), 8,
       2, 64, 64, DType::f16},
      {with_decodes(3, {{.cached = 600, .queries = 130}}), 8, 1, 64, 64, DType::bf16},
      {with_decodes(3, {{.cached = 9, .queries = 130}}), 16, 1, 64, 64, DType::bf16},
      {with_decodes(70, {{.cached = 3, .queries = 90}}), 4, 4, 64, 64, DType::bf16},
      {with_decodes(7, {{.cached = 3, .queries = 9}, {.cached = 90, .queries = 2}}), 8, 4, 128, 64, DType::bf16},
      {with_decodes(7, {{.cached = 3, .queries = 150}}), 8, 4, 128, 16, DType::bf16},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.sequences.size() << " sequences, " << c.q_heads << " and " << c.kv_heads
                                    << " heads of " << c.head_dim << ", pages of " << c.page_size);
    const AttentionShape attention{.sequences = c.sequences,
                                   .q_heads = c.q_heads,
                                   .kv_heads = c.kv_heads,
                                   .head_dim = c.head_dim,
                                   .page_size = c.page_size,
                                   .kv = c.kv};
    expect_definition(
        attention_block_case({.attention = attention, .width = 512, .weight = GetParam(), .qk_norm = true}, true, 4));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PromptProducts,
                         testing::Values(DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q5_k, DType::q6_k),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Norms that two products share, queries that stay in scratch memory.
TEST(PromptSteps, GiveTheLogitsOfSingleOps) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  setenv("INFERNO_CUDA_SYNC", "1", 1);
  const auto single = device_or_null();
  unsetenv("INFERNO_CUDA_SYNC");
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = 5;  // Q4_K_M has layers of both mixes
  shape.vocabulary = 1000;
  for (const char* type : {"BF16", "Q8_0", "Q4_K_M"}) {
    constexpr int32_t kStreams = 20;
    const RunLimits limits{.context = 3072, .max_tokens = 1024, .max_sequences = kStreams + 1};
    ModelRun tested(*device, SyntheticModel(shape, type), limits);
    ModelRun reference(*single, SyntheticModel(shape, type), limits);
    for (const int32_t tokens : {129, 512, 480, 1000}) {
      tested.prefill(0, prompt_of(tokens));
      reference.prefill(0, prompt_of(tokens));
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << type << ", " << tokens << " tokens";
    }
    for (int32_t s = 1; s < kStreams; ++s) {
      tested.prefill(s, prompt_of(40 * s));
      reference.prefill(s, prompt_of(40 * s));
    }
    for (const int32_t tokens : {200, 480}) {
      tested.decode_beside(kStreams, kStreams, prompt_of(tokens));
      reference.follow(tested);
      reference.decode_beside(kStreams, kStreams, prompt_of(tokens));
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << type << ", beside " << tokens << " tokens";
    }
    tested.decode(kStreams);
    reference.follow(tested);
    reference.decode(kStreams);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << type << ", after them";
  }
}

// Also where the step is replayed, and for the tokens after it, which see what it stored.
TEST(PromptSteps, GiveWhatDecodesAndAPromptGiveAlone) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = 5;
  shape.vocabulary = 1000;
  for (const char* type : {"BF16", "Q8_0", "Q4_K_M"}) {
    for (const int32_t streams : {1, 4, 32}) {
      const RunLimits limits{.context = 1536, .max_sequences = streams + 1};
      ModelRun mixed(*device, SyntheticModel(shape, type), limits);
      ModelRun alone(*device, SyntheticModel(shape, type), limits);
      for (int32_t s = 0; s < streams; ++s) {
        mixed.prefill(s, prompt_of(150 + s));
        alone.prefill(s, prompt_of(150 + s));
      }
      for (const int32_t tokens : {200, 200, 200, 30, 480}) {
        SCOPED_TRACE(testing::Message() << type << ", " << streams << " beside " << tokens << " tokens");
        mixed.decode_beside(streams, streams, prompt_of(tokens));
        alone.follow(mixed);
        alone.decode(streams);
        EXPECT_LE(nmse(alone.logits(), mixed.logits()), 2e-3);
        alone.prefill(streams, prompt_of(tokens), false);
        mixed.prefill(streams, prompt_of(17));
        alone.prefill(streams, prompt_of(17));
        EXPECT_LE(nmse(alone.logits(), mixed.logits()), 2e-3) << "the prompt";
      }
    }
  }
}

TEST(PromptSteps, AreTheSameEveryTime) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = 3;
  shape.vocabulary = 1000;
  ModelRun model(*device, SyntheticModel(shape, "Q8_0"), {.context = 1024, .max_tokens = 512});
  std::vector<float> first;
  for (int run = 0; run < 4; ++run) {
    model.reset();
    for (int step = 0; step < 2; ++step) model.prefill(0, prompt_of(512));
    if (run == 0) first = model.logits();
    EXPECT_EQ(first, model.logits());
  }
}

}  // namespace
}  // namespace inferno
