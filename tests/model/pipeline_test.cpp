// Layers divided among ranks in stages: the bits of one rank, since no sum has another order.
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/rank_failure.h"
#include "model/tensor_source.h"
#include "rank_runs.h"

namespace inferno::testing {
namespace {

EngineOptions staged(Communicator& ranks, int32_t stages, bool all = true) {
  EngineOptions options = options_of(&ranks, "simd", all);
  options.pipeline = stages;
  return options;
}

void expect_same_bits(const ModelFile& file, int ranks, const std::string& backend = "simd") {
  SCOPED_TRACE(file.path() + " in " + std::to_string(ranks) + " stages");
  // Long enough for several parts in a step, and for steps that end within a part's page.
  const int32_t count = std::min(150, read_config(file).context);
  const std::vector<int32_t> tokens = tokens_of(3, count, read_config(file).vocabulary);
  const std::vector<float> alone = logits_of(file, options_of(nullptr, backend), tokens, 0);
  Group group(ranks, &file);
  EngineOptions options = staged(group.leader(), ranks);
  options.backend = backend;
  for (const int32_t chunk : {0, 41}) EXPECT_EQ(logits_of(file, options, tokens, chunk), alone) << chunk;
}

TEST(Pipeline, EveryFamilyHasTheBitsOfOneRank) {
  for (const char* name : {"llama", "qwen2-tied", "qwen2-untied", "qwen3-yarn", "gemma2", "gemma3", "granite", "phi3",
                           "olmo3", "families/deepseek2"}) {
    expect_same_bits(GgufFile::open(fixture(std::string(name) + ".gguf")), 2);
  }
}

TEST(Pipeline, EveryTypeInTwoAndThreeStages) {
  for (const char* type : {"F32", "F16", "Q8_0", "Q4_K_M"}) {
    for (const int stages : {2, 3}) expect_same_bits(wide_model(type), stages);
  }
}

TEST(Pipeline, ExpertsAndTheBuiltInModel) {
  expect_same_bits(SyntheticModel(find_model_shape("tiny-moe"), "F32"), 2);
  expect_same_bits(open_builtin_model(), 2);
}

// The ranks of a stage add in rank order: near one rank, and the same bits every time.
TEST(Pipeline, StagesOfSeveralRanks) {
  for (const char* type : {"F32", "Q8_0"}) {
    const ModelFile& file = wide_model(type);
    const std::vector<int32_t> tokens = tokens_of(5, 120, 4000);
    const std::vector<float> alone = logits_of(file, options_of(nullptr), tokens, 0);
    const double tolerance = type == std::string("F32") ? kFloatTolerance : kQuantizedTolerance;
    Group group(4, &file);
    const std::vector<float> split = logits_of(file, staged(group.leader(), 2), tokens, 0);
    EXPECT_LT(rms_difference(alone, split), tolerance * scale_of(alone)) << type;
    EXPECT_EQ(split, logits_of(file, staged(group.leader(), 2), tokens, 0)) << type;
    EngineOptions uneven = staged(group.leader(), 2);
    uneven.split = {1, 1, 3, 1};
    EXPECT_LT(rms_difference(alone, logits_of(file, uneven, tokens, 0)), tolerance * scale_of(alone)) << type;
    // The bits of the two ranks of one stage, as no stage changes a sum.
    Group two(2, &file);
    EXPECT_EQ(split, logits_of(file, options_of(&two.leader()), tokens, 0)) << type;
  }
}

struct Crowd {
  std::vector<std::vector<int32_t>> answers;
  int32_t reused = 0;
};

// Prompts that begin alike, twice, all at once: mixed steps and cached beginnings.
Crowd run_crowd(Engine& engine) {
  const std::vector<int32_t> beginning = tokens_of(4, 150, 4000);
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int round = 0; round < 2; ++round) {
    for (const int32_t length : {150, 90, 140, 151, 64, 20}) {
      Request request{.prompt = {beginning.begin(), beginning.begin() + std::min(length, 150)}, .max_new_tokens = 40};
      request.prompt.push_back(length);
      request.stop_at_end = false;
      if (length == 90) request.sampling = {.temperature = 1.5F, .top_k = 40, .seed = 7};
      if (length == 64) request.top_logprobs = 3;
      tickets.push_back(engine.driver().submit(std::move(request)));
    }
    for (const auto& ticket : tickets) ticket->wait();
  }
  Crowd crowd;
  for (const auto& ticket : tickets) {
    crowd.answers.push_back(ticket->result().samples.front().ids);
    crowd.reused += ticket->result().metrics.reused_tokens;
  }
  return crowd;
}

TEST(Pipeline, CrowdsCachedBeginningsAndFewPagesChangeNothing) {
  const ModelFile& file = wide_model("Q8_0");
  EngineOptions plain = options_of(nullptr, "simd", false);
  plain.limits.max_sequences = 6;
  Engine alone(file, plain);
  const Crowd expected = run_crowd(alone);
  Group group(3, &file);
  EngineOptions options = staged(group.leader(), 3, false);
  options.limits.max_sequences = 6;
  for (const bool few_pages : {false, true}) {
    // Of the first stage's own layers: as all ranks have as many pages, those of the fullest one count.
    if (few_pages) options.kv_memory = 10 * KvCache::page_bytes(alone.cache().config()) / 3;
    Engine engine(file, options);
    const Crowd crowd = run_crowd(engine);
    EXPECT_EQ(crowd.answers, expected.answers);
    EXPECT_GT(crowd.reused, 300);
  }
}

TEST(Pipeline, EachRankHasItsLayersAndTheirCacheAlone) {
  const ModelFile& file = wide_model("Q8_0");
  const ModelConfig config = read_config(file);
  const auto whole = static_cast<double>(share_bytes(file, config, whole_share(config)));
  double all = 0;
  for (const ModelShare& share : split_model(file, config, 2, {}, 2)) {
    const auto bytes = static_cast<double>(share_bytes(file, config, share));
    EXPECT_LE(bytes, 0.7 * whole) << share.stage;  // three layers, and the embedding with the first
    all += bytes;
  }
  EXPECT_EQ(all, whole);
  Group group(2, &file);
  Engine engine(file, staged(group.leader(), 2, false));
  const Engine alone(file, options_of(nullptr, "simd", false));
  EXPECT_LT(static_cast<double>(engine.model().weight_bytes()),
            0.7 * static_cast<double>(alone.model().weight_bytes()));
  const int32_t own = engine.model().share().own_layers.count;
  EXPECT_EQ(KvCache::page_bytes(engine.cache().config()) * 3,
            KvCache::page_bytes({.layers = cache_layers(config), .dtype = DType::f32}) * static_cast<uint64_t>(own));
}

TEST(Pipeline, WhatStagesCannotDoIsOneLine) {
  const ModelFile& file = wide_model("Q8_0");
  const auto error = [&](int ranks, int32_t stages) -> std::string {
    Group group(ranks, &file);
    try {
      const Engine engine(file, staged(group.leader(), stages, false));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error(3, 2).find("`pipeline` 2 does not divide the 3 ranks"), std::string::npos) << error(3, 2);
  EXPECT_NE(error(4, 4).find("3 layers that cannot be divided among 4 stages"), std::string::npos) << error(4, 4);
}

TEST(Pipeline, ARankThatEndsFailsTheRequestsThatRun) {
  const ModelFile& file = wide_model("Q8_0");
  for (const int rank : {1, 2}) {
    Group group(3, &file);
    Engine engine(file, staged(group.leader(), 3, false));
    Request request{.prompt = tokens_of(1, 5, 4000), .max_new_tokens = 50};
    request.stop_at_end = false;
    request.on_token = [&, made = 0](const TokenEvent&) mutable {
      if (++made == 3) group.kill(rank);
      return true;
    };
    EXPECT_THROW((void)generate(engine, request), RankFailure) << rank;
  }
}

}  // namespace
}  // namespace inferno::testing
