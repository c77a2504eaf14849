// Layers of one to four decoded tokens as two kernels each (layer_half.cuh): logits against those of the kernels of
// single ops, which their own tests hold to the ops' definitions.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "backend/cuda/test_device.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

// Ops are launched one by one.
std::unique_ptr<Backend> single_ops_or_null() {
  setenv("INFERNO_CUDA_SYNC", "1", 1);
  auto device = device_or_null();
  unsetenv("INFERNO_CUDA_SYNC");
  return device;
}

struct LayersCase {
  const char* type;
  DType kv = DType::bf16;
};

class Layers : public testing::TestWithParam<LayersCase> {
 protected:
  static constexpr int64_t kVocabulary = 1000;
  static ModelShape shape() {
    ModelShape shape = find_model_shape("qwen3-0.6b");
    shape.layers = 5;  // Q4_K_M has layers of both mixes
    shape.vocabulary = kVocabulary;
    return shape;
  }
  // Of logits: both kinds of kernels quantize activations, K formats in groups of different sizes.
  static double limit() { return std::string_view(GetParam().type) == "Q4_K_M" ? 5e-3 : 2e-3; }
  static std::vector<float> row_of(const std::vector<float>& logits, int sequence) {
    const auto begin = logits.begin() + sequence * kVocabulary;
    return {begin, begin + kVocabulary};
  }
};

// A warp has 4 near positions, a cluster 256; then each block has a run of tiles of 16: around their ends; and more
// than the 32 tiles that a warp has the pages of.
TEST_P(Layers, GiveTheLogitsOfSingleOpsAtEveryDepth) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const auto single = single_ops_or_null();
  const RunLimits limits{.context = 34816, .max_tokens = 4608, .kv = GetParam().kv};
  ModelRun tested(*device, SyntheticModel(shape(), GetParam().type), limits);
  ModelRun reference(*single, SyntheticModel(shape(), GetParam().type), limits);
  for (const int32_t depth : {1, 2, 14, 29, 250, 268, 506, 1021, 4096, 8188, 33100}) {
    tested.reset();
    reference.reset();
    for (int32_t at = 0; at < depth; at += limits.max_tokens) {
      const std::vector<int32_t> prompt = prompt_of(std::min(depth - at, limits.max_tokens));
      tested.prefill(0, prompt);
      reference.prefill(0, prompt);
    }
    for (int step = 0; step < 8; ++step) {  // from the third on a captured graph runs
      tested.decode(1);
      reference.follow(tested);
      reference.decode(1);
      EXPECT_LE(nmse(reference.logits(), tested.logits()), limit()) << depth << " positions, step " << step;
    }
  }
}

// Streams of very different lengths, some of which cross a page or the positions of a round of tiles.
TEST_P(Layers, GiveTheLogitsOfSingleOpsToEveryStream) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const auto single = single_ops_or_null();
  const RunLimits limits{.context = 2304, .max_tokens = 2048, .max_sequences = 4, .kv = GetParam().kv};
  ModelRun tested(*device, SyntheticModel(shape(), GetParam().type), limits);
  ModelRun reference(*single, SyntheticModel(shape(), GetParam().type), limits);
  constexpr int32_t kDepths[][4] = {{1, 126, 2, 60}, {250, 61, 2043, 14}, {2044, 1, 380, 252}, {13, 1020, 29, 125}};
  for (const auto& depths : kDepths) {
    for (int32_t streams = 2; streams <= 4; ++streams) {
      tested.reset();
      reference.reset();
      for (int32_t s = 0; s < streams; ++s) {
        std::vector<int32_t> prompt = prompt_of(depths[s] + s);
        prompt.erase(prompt.begin(), prompt.begin() + s);
        tested.prefill(s, prompt);
        reference.prefill(s, prompt);
      }
      for (int step = 0; step < 8; ++step) {
        tested.decode(streams);
        reference.follow(tested);
        reference.decode(streams);
        const std::vector<float> expected = reference.logits();
        const std::vector<float> logits = tested.logits();
        for (int32_t s = 0; s < streams; ++s) {
          EXPECT_LE(nmse(row_of(expected, s), row_of(logits, s)), limit())
              << s << " of " << streams << " streams, " << depths[s] << " positions, step " << step;
        }
      }
    }
  }
}

// The bits of a stream's logits depend on the number of streams beside it, and not on what they are.
TEST_P(Layers, GiveAStreamTheSameBesideOthers) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const RunLimits limits{.context = 1024, .max_tokens = 1024, .max_sequences = 4, .kv = GetParam().kv};
  ModelRun model(*device, SyntheticModel(shape(), GetParam().type), limits);
  constexpr int kSteps = 4;
  const auto logits_beside = [&](int32_t streams, int32_t others) {
    model.reset();
    for (int32_t s = 0; s < streams; ++s) model.prefill(s, prompt_of(s == 1 ? 200 : others + s));
    std::vector<std::vector<float>> logits;
    for (int step = 0; step < kSteps; ++step) {
      model.decode(streams);
      logits.push_back(row_of(model.logits(), 1));
    }
    return logits;
  };
  for (int32_t streams = 2; streams <= 4; ++streams) {
    EXPECT_EQ(logits_beside(streams, 3), logits_beside(streams, 900)) << streams << " streams";
  }
}

// Clusters exchange their parts in whatever order they finish, and add them in one: the same steps give the same bits.
TEST_P(Layers, AreTheSameEveryTime) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  std::vector<float> logits[2];
  for (auto& run : logits) {
    ModelRun model(*device, SyntheticModel(shape(), GetParam().type), {.kv = GetParam().kv});
    model.prefill(0, prompt_of(70));
    for (int step = 0; step < 20; ++step) model.decode(1);
    run = model.logits();
  }
  EXPECT_EQ(logits[0], logits[1]);
}

INSTANTIATE_TEST_SUITE_P(Types, Layers,
                         testing::Values(LayersCase{"BF16"}, LayersCase{"Q8_0"}, LayersCase{"Q4_0"},
                                         LayersCase{"Q4_K_M"}, LayersCase{"Q8_0", DType::f16}),
                         [](const auto& param) {
                           return std::string(param.param.type) + (param.param.kv == DType::f16 ? "_f16_cache" : "");
                         });

}  // namespace
}  // namespace inferno
