// One model over several ranks that share a GPU: threads here, which exchange through host memory. It computes what one
// rank computes there. The same over processes is in tools/gpu_check.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/factory.h"
#include "base/error.h"
#include "rank_runs.h"

namespace inferno::testing {
namespace {

class RanksOnADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)create_backend("cuda");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { ::unsetenv("INFERNO_CUDA_MEMORY"); }
};

EngineOptions on_device(Communicator* ranks, bool all = true) {
  EngineOptions options = options_of(ranks, "cuda", all);
  options.context = 512;
  return options;
}

std::string error_of(const ModelFile& file, const EngineOptions& options) {
  try {
    const Engine engine(file, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Chunks of 7 tokens are few enough for the kernels of decoding, 40 are not.
TEST_F(RanksOnADevice, LogitsAreThoseOfOneRankForEveryType) {
  const std::vector<int32_t> tokens = tokens_of(3, 47, 4000);
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "Q4_K_M", "Q6_K"}) {
    const ModelFile& file = wide_model(type);
    const double tolerance = type == std::string("F32") ? kFloatTolerance : kQuantizedTolerance;
    for (const int32_t chunk : {1, 7, 40}) {
      const std::vector<float> alone = logits_of(file, on_device(nullptr), tokens, chunk);
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(std::string(type) + " in chunks of " + std::to_string(chunk) + " on " + std::to_string(ranks));
        Group group(ranks, &file);
        const std::vector<float> split = logits_of(file, on_device(&group.leader()), tokens, chunk);
        EXPECT_LT(rms_difference(alone, split), tolerance * scale_of(alone));
      }
    }
  }
}

TEST_F(RanksOnADevice, UnequalPartsAndRoundedSumsStayNear) {
  const ModelFile& file = wide_model("Q8_0");
  const std::vector<int32_t> tokens = tokens_of(5, 12, 4000);
  const std::vector<float> alone = logits_of(file, on_device(nullptr), tokens);
  Group group(3, &file);
  EngineOptions uneven = on_device(&group.leader());
  uneven.split = {2, 1, 1};
  const std::vector<float> split = logits_of(file, uneven, tokens);
  EXPECT_LT(rms_difference(alone, split), kQuantizedTolerance * scale_of(alone));
  EXPECT_EQ(split, logits_of(file, uneven, tokens)) << "other bits in the second run";
  EngineOptions rounded = on_device(&group.leader());
  rounded.wire = DType::bf16;
  EXPECT_LT(rms_difference(alone, logits_of(file, rounded, tokens)), 2 * kQuantizedTolerance * scale_of(alone));
}

// Where two tokens are as likely, sums in another order may turn them.
TEST_F(RanksOnADevice, GreedyTextFollowsOneRankUpToANearTie) {
  constexpr double kNearTie = 0.3;
  const GgufFile file = open_builtin_model();
  const std::vector<int32_t> prompt = tokens_of(2, 30, 8192);
  Engine alone(file, on_device(nullptr, false));
  const std::vector<int32_t> expected = generate_ids(alone, prompt, 64);
  Group group(2, &file);
  Engine engine(file, on_device(&group.leader(), false));
  const Agreement agreement = greedy_agreement(engine, prompt, expected);
  EXPECT_TRUE(agreement.margin_at_difference == INFINITY || agreement.margin_at_difference < kNearTie)
      << "diverges at " << agreement.tokens << " with margin " << agreement.margin_at_difference;
}

TEST_F(RanksOnADevice, TokensAreDrawnAsFromAllLogits) {
  const ModelFile& file = wide_model("F32");
  Group group(2, &file);
  Engine engine(file, on_device(&group.leader(), false));
  for (const SamplingSettings& settings :
       {SamplingSettings{}, SamplingSettings{.temperature = 1.5F, .top_k = 40, .seed = 7}}) {
    Request request{.prompt = tokens_of(2, 9, 4000), .sampling = settings, .max_new_tokens = 24};
    request.stop_at_end = request.reuse_prefix = false;
    const std::vector<int32_t> by_candidates = generate(engine, request).samples.front().ids;
    request.top_logprobs = 0;  // needs all logits
    EXPECT_EQ(by_candidates, generate(engine, request).samples.front().ids) << settings.top_k;
  }
}

TEST_F(RanksOnADevice, ManyRequestsAtOnceAndCachedBeginningsAreAnswered) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  Engine engine(file, on_device(&group.leader(), false));
  const std::vector<int32_t> beginning = tokens_of(4, 150, 4000);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (const int32_t length : {150, 90, 140, 120}) {
      Request request{.prompt = {beginning.begin(), beginning.begin() + length}, .max_new_tokens = 12};
      request.stop_at_end = false;
      tickets.push_back(engine.driver().submit(std::move(request)));
    }
    for (const auto& ticket : tickets) {
      ticket->wait();
      EXPECT_EQ(ticket->result().samples.front().ids.size(), 12U);
    }
  }
}

TEST_F(RanksOnADevice, EachHasItsPartOfTheWeightsAndOfTheFreeMemory) {
  const ModelFile& file = wide_model("Q8_0");
  Engine alone(file, on_device(nullptr, false));
  Group group(2, &file);
  Engine engine(file, on_device(&group.leader(), false));
  EXPECT_LE(static_cast<double>(engine.model().weight_bytes()),
            0.55 * static_cast<double>(alone.model().weight_bytes()));
  ::setenv("INFERNO_CUDA_MEMORY", "1000", 1);
  const auto free = [](Engine& one) { return one.backend().free_memory().value_or(0); };
  EXPECT_EQ(2 * free(engine), free(alone));
}

TEST_F(RanksOnADevice, APartThatDoesNotFitIsOneLine) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  ::setenv("INFERNO_CUDA_MEMORY", "4", 1);
  const std::string text = error_of(file, on_device(&group.leader()));
  EXPECT_NE(text.find("does not fit"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  ::unsetenv("INFERNO_CUDA_MEMORY");
  EXPECT_EQ(error_of(file, on_device(&group.leader())), "") << "the ranks did not go on";
}

TEST_F(RanksOnADevice, ARankThatEndsFailsTheRequestsThatRun) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  Engine engine(file, on_device(&group.leader()));
  expect_requests_fail_once_a_rank_ends(engine, group);
}

}  // namespace
}  // namespace inferno::testing
