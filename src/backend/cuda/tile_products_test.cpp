// Products of some tens of tokens, which have a kernel of their own: types of weights, numbers of tokens and shapes
// against the ops' definitions.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <numeric>
#include <span>

#include "backend/cuda/test_device.h"
#include "backend/factory.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

class TileProducts : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    device_ = device_or_null();
    if (!device_) GTEST_SKIP() << "no GPU";
  }

  void expect_definition(const OpImage& image) {
    const OpRecord& record = image.record();
    const OpImage expected = run_on(*exact_, image);
    const double limit = nmse_limit(record, Numerics::wide);
    for (const FieldDifference& d : compare_written(image, expected, run_on(*device_, image))) {
      EXPECT_FALSE(d.beyond(limit)) << d.field << ": nmse " << d.nmse << " of " << limit << ", at " << d.worst << " "
                                    << d.worst_tested << " instead of " << d.worst_reference;
    }
  }

  std::unique_ptr<Backend> device_;
  std::unique_ptr<Backend> exact_ = create_backend("scalar", {.fused = false});
};

// One unit per block, several, a number that the blocks of a cluster cannot share equally; tokens that fill their
// columns and that do not; rows that fill the last tile and that do not.
TEST_P(TileProducts, LinearsGiveWhatTheirDefinitionGives) {
  for (const int64_t k : {256, 1024, 3072}) {
    for (const int64_t tokens : {6, 8, 9, 16, 17, 32, 50, 64, 65, 128}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << k);
      const LinearShape shape{.tokens = tokens, .k = k, .weight = GetParam()};
      LinearShape three = shape;
      three.n = {520, 72, 65};
      three.bias = true;
      expect_definition(linear_case(three, 1));
      LinearShape adds = shape;
      adds.n = {1031};
      adds.residual = adds.residual_is_out = true;
      expect_definition(linear_case(adds, 2));
    }
  }
}

// Rows of whole tiles of few rows: with and without a cluster, whose blocks have different numbers of tokens.
TEST_P(TileProducts, FewRowsOfABlockGiveWhatTheirDefinitionGives) {
  for (const int64_t k : {1024, 2048, 3072}) {
    for (const int64_t tokens : {6, 8, 11, 16, 27, 32}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << k);
      const LinearShape shape{.tokens = tokens, .k = k, .weight = GetParam()};
      LinearShape three = shape;
      three.n = {256, 64, 96};
      three.bias = true;
      expect_definition(linear_case(three, 7));
      LinearShape adds = shape;
      adds.n = {544};
      adds.residual = adds.residual_is_out = true;
      expect_definition(linear_case(adds, 8));
    }
  }
  for (const int64_t width : {1024, 2048}) {
    for (const int64_t tokens : {7, 16, 19, 32}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << width << " wide");
      expect_definition(mlp_case(
          {.tokens = tokens, .width = width, .ffn = 512, .weight = GetParam(), .down = GetParam(), .norm = false}, 9));
    }
  }
}

// So many rows have a kernel of their own, from three tokens on (two: FewTokens); the last piece of them is not full.
TEST_P(TileProducts, RowsOfTheHeadAreChosenByTheirIndices) {
  for (const size_t rows : {3, 5, 12, 32, 33, 100}) {
    SCOPED_TRACE(rows);
    std::vector<int32_t> ids(rows);
    std::iota(ids.rbegin(), ids.rend(), 2);
    expect_definition(
        logits_case({.tokens = 110, .rows = ids, .width = 1024, .vocabulary = 17'029, .weight = GetParam()}, 4));
  }
}

// Gate and up share a tile, and seven units of the down projection are shared by four blocks.
TEST_P(TileProducts, GatedMlpsGiveWhatTheirDefinitionGives) {
  for (const int64_t tokens : {6, 9, 32, 70}) {
    SCOPED_TRACE(tokens);
    expect_definition(mlp_case(
        {.tokens = tokens, .width = 512, .ffn = 1792, .weight = GetParam(), .down = GetParam(), .norm = true}, 3));
  }
}

// Long rows and many tiles: the blocks reuse their shared memory.
TEST_P(TileProducts, LongRowsGiveWhatTheirDefinitionGives) {
  for (const int64_t tokens : {10, 40, 100}) {
    SCOPED_TRACE(tokens);
    expect_definition(linear_case({.tokens = tokens, .k = 12'288, .n = {136}, .weight = GetParam()}, 5));
  }
}

// Nor on how many there are; blocks of few rows are for up to 16 tokens.
TEST_P(TileProducts, ATokensResultDoesNotDependOnTheOthers) {
  const auto expect_same = [&](int64_t width, int64_t rows, std::span<const int64_t> counts) {
    std::vector<float> alone;
    for (const int64_t tokens : counts) {
      LogitsShape shape{.tokens = 128, .width = width, .vocabulary = rows, .weight = GetParam()};
      shape.rows.resize(static_cast<size_t>(tokens));
      std::iota(shape.rows.begin(), shape.rows.end(), 0);
      const OpImage image = run_on(*device_, logits_case(shape, 6));
      const float* out = image.record().args<LogitsArgs>().out.f32();
      if (alone.empty()) alone.assign(out, out + rows);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out)) << tokens << " tokens, " << rows << " rows of " << width;
    }
  };
  constexpr int64_t kCounts[] = {6, 9, 16, 30, 64, 128};
  // 16-bit weights are cuBLAS's with more.
  expect_same(1024, 600, std::span(kCounts).first(GetParam() == DType::bf16 ? 5 : 6));
  for (const int64_t width : {1024, 2048, 3072}) expect_same(width, 608, std::span(kCounts).first(3));
}

INSTANTIATE_TEST_SUITE_P(Types, TileProducts,
                         testing::Values(DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q5_k, DType::q6_k),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Norms that two products share, of rows with fewer and with more sums of squares than are loaded at a time.
TEST(TileSteps, GiveTheLogitsOfSingleOps) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  setenv("INFERNO_CUDA_SYNC", "1", 1);
  const auto single = device_or_null();
  unsetenv("INFERNO_CUDA_SYNC");
  constexpr int32_t kMost = 70;
  for (const char* type : {"BF16", "Q8_0", "Q4_K_M"}) {
    for (const uint32_t width : {512U, 1024U, 1280U}) {
      ModelShape shape = find_model_shape("qwen3-0.6b");
      shape.layers = 2;
      shape.width = width;
      shape.ffn = 1792;
      shape.vocabulary = 1000;
      const RunLimits limits{.context = 128, .max_tokens = 128, .max_sequences = kMost};
      ModelRun tested(*device, SyntheticModel(shape, type), limits);
      ModelRun reference(*single, SyntheticModel(shape, type), limits);
      for (int32_t s = 0; s < kMost; ++s) {
        tested.prefill(s, prompt_of(3 + s));
        reference.prefill(s, prompt_of(3 + s));
      }
      for (const int32_t streams : {7, 13, 16, 27, 32, 50, kMost}) {
        tested.decode(streams);
        reference.follow(tested);
        reference.decode(streams);
        EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3)
            << type << ", rows of " << width << ", " << streams << " streams";
      }
    }
  }
}

// So few streams have a block per pair of stream and kv head, too, however long they are.
TEST(TileSteps, GiveTheLogitsOfSingleOpsToFewDeepStreams) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  setenv("INFERNO_CUDA_SYNC", "1", 1);
  const auto single = device_or_null();
  unsetenv("INFERNO_CUDA_SYNC");
  constexpr int32_t kDepths[] = {1, 63, 64, 500, 701, 1100};
  constexpr auto kStreams = static_cast<int32_t>(std::size(kDepths));
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = 2;
  shape.vocabulary = 1000;
  const RunLimits limits{.context = 1152, .max_tokens = 1152, .max_sequences = kStreams};
  ModelRun tested(*device, SyntheticModel(shape, "Q8_0"), limits);
  ModelRun reference(*single, SyntheticModel(shape, "Q8_0"), limits);
  for (int32_t s = 0; s < kStreams; ++s) {
    tested.prefill(s, prompt_of(kDepths[s]));
    reference.prefill(s, prompt_of(kDepths[s]));
  }
  for (int step = 0; step < 5; ++step) {  // from the third on a captured graph runs
    tested.decode(kStreams);
    reference.follow(tested);
    reference.decode(kStreams);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << step;
  }
}

// Products between two attentions as one kernel; tokens that fill both halves and that do not, pages that a sequence
// has filled and not, and steps that are replayed. From 96 tokens on, most quantized weights are unpacked for it.
class ChainSteps : public testing::TestWithParam<const char*> {};

TEST_P(ChainSteps, GiveTheLogitsOfSingleOps) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  setenv("INFERNO_CUDA_SYNC", "1", 1);
  const auto single = device_or_null();
  unsetenv("INFERNO_CUDA_SYNC");
  constexpr int32_t kMost = 128;
  struct Case {
    uint32_t width, ffn;
    uint32_t heads = 16;
    uint32_t kv_heads = 8;
  };
  // With 20 heads, a step goes back to the ring's beginning while one behind the step before it is not read yet.
  for (const Case& c : {Case{1024, 3072}, Case{512, 1536}, Case{768, 2304}, Case{1024, 768, 20, 4}}) {
    ModelShape shape = find_model_shape("qwen3-0.6b");
    shape.layers = 3;
    shape.q_heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.width = c.width;
    shape.ffn = c.ffn;
    shape.vocabulary = 1000;
    const RunLimits limits{.context = 192, .max_tokens = 128, .max_sequences = kMost};
    ModelRun tested(*device, SyntheticModel(shape, GetParam()), limits);
    ModelRun reference(*single, SyntheticModel(shape, GetParam()), limits);
    for (int32_t s = 0; s < kMost; ++s) {
      tested.prefill(s, prompt_of(3 + s % 100));
      reference.prefill(s, prompt_of(3 + s % 100));
    }
    for (const int32_t streams : {33, 61, 64, 64, 64, 65, 100, kMost, kMost, kMost}) {
      tested.decode(streams);
      reference.follow(tested);
      reference.decode(streams);
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3)
          << "rows of " << c.width << ", " << streams << " streams";
    }
  }
}

TEST_P(ChainSteps, AreTheSameEveryTime) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = 4;
  shape.vocabulary = 1000;
  constexpr int32_t kStreams = 128;
  ModelRun model(*device, SyntheticModel(shape, GetParam()), {.context = 64, .max_sequences = kStreams});
  std::vector<float> first;
  for (int run = 0; run < 5; ++run) {
    model.reset();
    for (int32_t s = 0; s < kStreams; ++s) model.prefill(s, prompt_of(5 + s % 20));
    for (int step = 0; step < 4; ++step) model.decode(kStreams);
    if (run == 0) first = model.logits();
    EXPECT_EQ(first, model.logits());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ChainSteps, testing::Values("BF16", "Q4_K_M", "Q5_0"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace inferno
