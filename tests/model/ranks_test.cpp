// One model over several ranks, which are threads here: it computes what one rank computes.
#include <gtest/gtest.h>

#include "model/split.h"
#include "model/tensor_source.h"
#include "rank_runs.h"

namespace inferno::testing {
namespace {

void expect_same_model(const ModelFile& file, int ranks, double tolerance, const std::string& backend = "simd") {
  SCOPED_TRACE(file.path() + " on " + std::to_string(ranks) + " ranks");
  const int32_t vocabulary = read_config(file).vocabulary;
  const std::vector<int32_t> tokens = tokens_of(3, 20, vocabulary);
  const std::vector<float> alone = logits_of(file, options_of(nullptr, backend), tokens);
  Group group(ranks, &file);
  const std::vector<float> split = logits_of(file, options_of(&group.leader(), backend), tokens);
  EXPECT_LT(rms_difference(alone, split), tolerance * scale_of(alone));
  EXPECT_EQ(split, logits_of(file, options_of(&group.leader(), backend), tokens)) << "other bits in the second run";
}

TEST(Ranks, EveryFamilyComputesWhatOneRankComputes) {
  for (const char* name : {"llama", "qwen2-tied", "qwen2-untied", "qwen3-tied", "qwen3-yarn", "gemma2", "granite",
                           "phi3", "llama3-scaled"}) {
    const GgufFile file = GgufFile::open(fixture(std::string(name) + ".gguf"));
    expect_same_model(file, 2, kFloatTolerance);
  }
}

TEST(Ranks, EveryTypeOnTwoAndFourRanks) {
  for (const char* type : {"F32", "F16", "Q8_0", "Q4_0", "Q4_K_M", "Q6_K"}) {
    for (const int ranks : {2, 4}) {
      expect_same_model(wide_model(type), ranks, type == std::string("F32") ? kFloatTolerance : kQuantizedTolerance);
    }
  }
}

TEST(Ranks, ExpertsAreDividedToo) {
  const SyntheticModel file(find_model_shape("tiny-moe"), "F32");
  expect_same_model(file, 2, kFloatTolerance);
}

TEST(Ranks, TheBuiltInModelOnPlainLoopsAndOnPrimitives) {
  const GgufFile file = open_builtin_model();
  expect_same_model(file, 2, kQuantizedTolerance);
  const std::vector<int32_t> tokens = tokens_of(1, 4, 8192);
  Group group(2);
  EngineOptions alone = options_of(nullptr, "scalar");
  EngineOptions split = options_of(&group.leader(), "scalar");
  alone.backend_options.fused = split.backend_options.fused = false;
  const std::vector<float> expected = logits_of(file, alone, tokens);
  EXPECT_LT(rms_difference(expected, logits_of(file, split, tokens)), kQuantizedTolerance * scale_of(expected));
}

TEST(Ranks, UnequalPartsAndRoundedSumsStayNear) {
  const ModelFile& file = wide_model("Q8_0");
  const std::vector<int32_t> tokens = tokens_of(5, 12, 4000);
  const std::vector<float> alone = logits_of(file, options_of(nullptr), tokens);
  Group group(2, &file);
  EngineOptions uneven = options_of(&group.leader());
  uneven.split = {3, 1};
  EXPECT_LT(rms_difference(alone, logits_of(file, uneven, tokens)), kQuantizedTolerance * scale_of(alone));
  EngineOptions rounded = options_of(&group.leader());
  rounded.wire = DType::bf16;
  EXPECT_LT(rms_difference(alone, logits_of(file, rounded, tokens)), 2 * kQuantizedTolerance * scale_of(alone));
}

// Greedy draws and those of few candidates come from the candidates of all ranks, others from all logits.
TEST(Ranks, TokensAreDrawnAsFromAllLogits) {
  const ModelFile& file = wide_model("F32");
  Group group(3, &file);
  EngineOptions options = options_of(&group.leader(), "simd", false);
  options.split = {2, 1, 1};
  Engine engine(file, options);
  const std::vector<int32_t> prompt = tokens_of(2, 9, 4000);
  for (const SamplingSettings& settings :
       {SamplingSettings{}, SamplingSettings{.temperature = 1.5F, .top_k = 40, .seed = 7},
        SamplingSettings{.temperature = 1.2F, .top_k = 20, .top_p = 0.9F, .min_p = 0.01F, .seed = 3}}) {
    Request request{.prompt = prompt, .sampling = settings, .max_new_tokens = 24};
    request.stop_at_end = false;
    const std::vector<int32_t> by_candidates = generate(engine, request).samples.front().ids;
    request.top_logprobs = 0;  // needs all logits
    EXPECT_EQ(by_candidates, generate(engine, request).samples.front().ids) << settings.top_k;
  }
}

TEST(Ranks, CrowdsAndCachedBeginningsChangeNothing) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  Engine engine(file, options_of(&group.leader(), "simd", false));
  const std::vector<int32_t> beginning = tokens_of(4, 150, 4000);
  std::vector<std::vector<int32_t>> prompts;
  for (const int32_t length : {150, 90, 140, 151}) {
    prompts.emplace_back(beginning.begin(), beginning.begin() + std::min(length, 150));
    prompts.back().push_back(length);
  }
  std::vector<std::vector<int32_t>> alone;
  for (const auto& prompt : prompts) {
    Request request{.prompt = prompt, .max_new_tokens = 12};
    request.stop_at_end = request.reuse_prefix = false;
    alone.push_back(generate(engine, std::move(request)).samples.front().ids);
  }
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int round = 0; round < 2; ++round) {
    for (const auto& prompt : prompts) {
      Request request{.prompt = prompt, .max_new_tokens = 12};
      request.stop_at_end = false;
      tickets.push_back(engine.driver().submit(std::move(request)));
    }
    for (const auto& ticket : tickets) ticket->wait();
  }
  int32_t reused = 0;
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(tickets[i]->result().samples.front().ids, alone[i % alone.size()]) << i;
    reused += tickets[i]->result().metrics.reused_tokens;
  }
  EXPECT_GT(reused, 500);
}

// What ran out of pages is computed again, on every rank: the tokens of each request alone.
TEST(Ranks, PagesThatRunOutChangeNoTokenOverRanksAndStages) {
  constexpr int32_t kPages = 9;  // for two of the requests
  const ModelFile& file = wide_model("Q8_0");
  const ModelConfig config = read_config(file);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request request{.prompt = tokens_of(i / 2, 150 + i, config.vocabulary), .max_new_tokens = 56};
    request.stop_at_end = false;
    if (i % 3 == 1) request.sampling = {.temperature = 1.5F, .top_k = 40, .seed = 7};
    if (i == 4) request.samples = 2;  // which share pages until each writes its own
    requests.push_back(std::move(request));
  }
  const auto ids_of = [](const Ticket& ticket) {
    std::vector<std::vector<int32_t>> ids;
    for (const Completion& sample : ticket.result().samples) ids.push_back(sample.ids);
    return ids;
  };
  // By this thread, not by the driver's: all of them are there from the first step on.
  const auto run_all = [](Engine& engine) {
    while (engine.scheduler().step()) {
    }
  };
  struct Layout {
    int ranks;
    int32_t stages;
  };
  for (const Layout& layout : {Layout{2, 1}, {3, 3}, {4, 2}}) {
    SCOPED_TRACE(std::to_string(layout.ranks) + " ranks in " + std::to_string(layout.stages) + " stages");
    Group group(layout.ranks, &file);
    EngineOptions options = options_of(&group.leader(), "simd", false);
    options.pipeline = layout.stages;
    options.limits.max_sequences = 8;
    std::vector<std::vector<std::vector<int32_t>>> alone;
    {
      Engine engine(file, options);
      for (Request request : requests) {
        request.reuse_prefix = false;
        const auto ticket = engine.scheduler().submit(std::move(request));
        run_all(engine);
        alone.push_back(ids_of(*ticket));
      }
      EXPECT_EQ(engine.scheduler().stats().preemptions, 0);
    }
    // All ranks have as many pages as the one with the largest ones.
    uint64_t page_bytes = 0;
    for (const ModelShare& share : split_model(file, config, layout.ranks, {}, layout.stages)) {
      page_bytes =
          std::max(page_bytes, KvCache::page_bytes({.layers = cache_layers(config, share), .dtype = DType::f32}));
    }
    options.kv_memory = kPages * page_bytes;
    Engine engine(file, options);
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (const Request& request : requests) tickets.push_back(engine.scheduler().submit(request));
    run_all(engine);
    for (size_t i = 0; i < tickets.size(); ++i) EXPECT_EQ(ids_of(*tickets[i]), alone[i]) << "request " << i;
    EXPECT_EQ(engine.cache().pool().pages(), kPages);
    EXPECT_GT(engine.scheduler().stats().preemptions, 0) << "the test must run out of pages";
  }
}

TEST(Ranks, EachRankHasAboutHalfOfTheWeights) {
  for (const char* type : {"Q8_0", "Q4_K_M"}) {
    const ModelFile& file = wide_model(type);
    const ModelConfig config = read_config(file);
    const uint64_t whole = share_bytes(file, config, whole_share(config));
    for (const ModelShare& share : split_model(file, config, 2)) {
      EXPECT_LE(share_bytes(file, config, share), 0.55 * static_cast<double>(whole)) << type << " rank " << share.rank;
    }
    Group group(2, &file);
    const Engine engine(file, options_of(&group.leader(), "simd", false));
    const Engine alone(file, options_of(nullptr, "simd", false));
    EXPECT_LE(static_cast<double>(engine.model().weight_bytes()),
              0.55 * static_cast<double>(alone.model().weight_bytes()));
  }
}

TEST(Ranks, WhatARankCannotDoIsTheLeadersError) {
  const ModelFile& file = wide_model("Q8_0");
  const ModelFile& other = wide_model("Q4_0");
  Group group(2, &other);
  const auto error = [&](const ModelFile& opened, const EngineOptions& options) -> std::string {
    try {
      const Engine engine(opened, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string differs = error(file, options_of(&group.leader()));
  EXPECT_NE(differs.find("rank 1"), std::string::npos) << differs;
  EXPECT_NE(differs.find("another file"), std::string::npos) << differs;
  // The ranks go on: the next one is the same file.
  EXPECT_EQ(error(other, options_of(&group.leader())), "");
  EngineOptions kept = options_of(&group.leader());
  kept.page_folder = ::testing::TempDir();
  EXPECT_NE(error(other, kept).find("cannot be kept"), std::string::npos);
  Group many(5, &other);
  EXPECT_NE(error(other, options_of(&many.leader())).find("ranks"), std::string::npos);
}

TEST(Ranks, OneModelAtATime) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  {
    const Engine first(file, options_of(&group.leader()));
    EXPECT_THROW(Engine(file, options_of(&group.leader())), Error);
  }
  EXPECT_NO_THROW(Engine(file, options_of(&group.leader())));
}

TEST(Ranks, ARankThatEndsFailsTheRequestsThatRun) {
  const ModelFile& file = wide_model("Q8_0");
  Group group(2, &file);
  Engine engine(file, options_of(&group.leader()));
  expect_requests_fail_once_a_rank_ends(engine, group);
}

}  // namespace
}  // namespace inferno::testing
