// The public API as one caller sees it. Many callers: many_requests_test.cpp; bad use: misuse_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "inferno/inferno.h"
#include "support/test_data.h"

namespace inferno {
namespace {

Llm load(LoadOptions options = {}) {
  options.backend = "scalar";
  return Llm::load(testing::kLlamaFile, options);
}

TEST(Api, GenerateStreamsExactlyTheTextItReturns) {
  Llm llm = load();
  std::string streamed;
  const GenerateResult result = llm.generate("The sea", {.max_new_tokens = 20}, [&](const TokenEvent& token) {
    streamed += token.text;
    return true;
  });
  EXPECT_EQ(streamed, result.text());
  EXPECT_EQ(result.metrics.generated_tokens, static_cast<int32_t>(result.ids().size()));
  EXPECT_FALSE(result.ids().empty());
  EXPECT_GT(result.metrics.prompt_tokens_per_second, 0);
}

TEST(Api, ACallbackThatReturnsFalseEndsTheGeneration) {
  Llm llm = load();
  int calls = 0;
  const GenerateResult result = llm.generate("The sea", {.max_new_tokens = 50}, [&](const TokenEvent&) {
    ++calls;
    return false;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.reason(), StopReason::cancelled);
}

TEST(Api, IdsAsPromptContinueAsTheirTextDoes) {
  Llm llm = load();
  const GenerateOptions options{.max_new_tokens = 12};
  const GenerateResult text = llm.generate("The old ship", options);
  const GenerateResult ids = llm.generate(llm.encode("The old ship"), options);
  EXPECT_EQ(text.ids(), ids.ids());
  EXPECT_EQ(text.text(), ids.text());
}

TEST(Api, ResultsSayWhatWasReusedAndWhyNotMore) {
  Llm llm = load();
  const std::vector<int32_t> prompt(100, 5);
  const GenerateResult first = llm.generate(prompt, {.max_new_tokens = 1});
  EXPECT_EQ(first.metrics.reused_tokens, 0);
  EXPECT_EQ(to_string(first.metrics.reuse_end), "unseen");
  const GenerateResult second = llm.generate(prompt, {.max_new_tokens = 1});
  EXPECT_EQ(second.metrics.reused_tokens, 99);
  EXPECT_EQ(second.metrics.reuse_end, ReuseEnd::complete);
  const GenerateResult salted = llm.generate(prompt, {.max_new_tokens = 1, .cache_salt = "another user"});
  EXPECT_EQ(salted.metrics.reused_tokens, 0);
}

TEST(Api, SamplesOfOnePromptDifferAndComeAgainWithTheirSeed) {
  Llm llm = load();
  GenerateOptions options{.max_new_tokens = 12, .sampling = {.temperature = 1, .seed = 7}, .samples = 3};
  const GenerateResult first = llm.generate("The sea", options);
  ASSERT_EQ(first.samples.size(), 3U);
  EXPECT_NE(first.samples[0].ids, first.samples[1].ids);
  const GenerateResult again = llm.generate("The sea", options);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(first.samples[i].ids, again.samples[i].ids);
}

TEST(Api, LogprobsAreThoseOfTheLogits) {
  Llm llm = load();
  const std::vector<int32_t> prompt = llm.encode("The sea");
  const GenerateResult result = llm.generate(prompt, {.max_new_tokens = 4, .top_logprobs = 3});
  const Logits logits = llm.logits(prompt);
  ASSERT_EQ(logits.rows, 1);
  ASSERT_EQ(logits.vocabulary, llm.vocabulary());
  ASSERT_EQ(result.samples[0].logprobs.size(), result.ids().size());
  double sum = 0;
  for (const float x : logits.row(0)) sum += std::exp(static_cast<double>(x));
  const std::vector<TokenLogprob>& first = result.samples[0].logprobs[0];
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[0].id, result.ids()[0]);
  for (const TokenLogprob& entry : first) {
    EXPECT_NEAR(entry.logprob, logits.row(0)[static_cast<size_t>(entry.id)] - std::log(sum), 1e-4);
  }
  EXPECT_GE(first[1].logprob, first[2].logprob);
}

TEST(Api, LogitsOfAllPositionsEndWithThoseOfTheLast) {
  Llm llm = load({.all_logits = true});
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  const Logits all = llm.logits(prompt, 0);
  const Logits last = llm.logits(prompt);
  ASSERT_EQ(all.rows, 5);
  EXPECT_EQ(last.first_position, 4);
  EXPECT_EQ(std::vector<float>(all.row(4).begin(), all.row(4).end()), last.values);
}

TEST(Api, BiasMaskAndStopsDecideTheText) {
  Llm llm = load();
  const std::vector<int32_t> free = llm.generate("The sea", {.max_new_tokens = 3}).ids();
  const GenerateResult banned = llm.generate("The sea", {.max_new_tokens = 1, .logit_bias = {{free[0], -INFINITY}}});
  EXPECT_NE(banned.ids(), std::vector<int32_t>{free[0]});
  std::vector<uint32_t> mask(static_cast<size_t>(llm.vocabulary() + 31) / 32);
  mask[0] = 1U << 9;
  const GenerateResult masked = llm.generate(
      "The sea", {.max_new_tokens = 3,
                  .allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(mask); }});
  EXPECT_EQ(masked.ids(), (std::vector<int32_t>{9, 9, 9}));
  const GenerateResult stopped = llm.generate("The sea", {.max_new_tokens = 3, .stop_ids = {free[1]}});
  EXPECT_EQ(stopped.ids(), std::vector<int32_t>{free[0]});
  EXPECT_EQ(stopped.reason(), StopReason::stop_token);
}

TEST(Api, EveryCacheTypeAndAffinityLoads) {
  for (const char* type : {"f32", "f16", "bf16", "q8_0"}) {
    LoadOptions options;
    options.kv_type = type;
    options.affinity = "none";
    options.max_token_latency_ms = 50;
    options.kv_memory = 64 << 20;
    Llm llm = Llm::builtin(options);
    EXPECT_EQ(llm.generate(std::vector<int32_t>{1, 2}, {.max_new_tokens = 2}).metrics.prompt_tokens, 2) << type;
  }
}

TEST(Api, TokensLeadBackToTheText) {
  const Llm llm = load();
  EXPECT_EQ(llm.detokenize(llm.tokenize("The old ship")), "The old ship");
}

TEST(Api, AProfileHasTheOpsThatRan) {
  Llm llm = load({.profile = true});
  (void)llm.generate("The sea", {.max_new_tokens = 5});
  const ProfileReport report = llm.profile();
  ASSERT_EQ(report.phases.size(), 2U);
  EXPECT_EQ(report.phases[0].phase, "prefill");
  EXPECT_EQ(report.phases[1].steps, 4);
  EXPECT_FALSE(report.phases[1].ops.empty());
  EXPECT_FALSE(report.text.empty());
}

// ---- tools

TEST(Tools, InspectSaysWhatIsInAFile) {
  const ModelInfo info = inspect_model(testing::kLlamaFile);
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_GT(info.layers, 0);
  EXPECT_GT(info.gguf_version, 0U);
  const auto tokens = std::ranges::find(info.metadata, "tokenizer.ggml.tokens", &MetadataInfo::key);
  ASSERT_NE(tokens, info.metadata.end());
  EXPECT_EQ(tokens->length, static_cast<uint64_t>(info.vocabulary));
  EXPECT_EQ(tokens->items.size(), kMaxMetadataItems);
}

TEST(Tools, QuantizeWritesAFileThatLoads) {
  const std::string output = ::testing::TempDir() + "inferno_api_quantized.gguf";
  const QuantizeReport report = quantize_model(testing::kLlamaFile, output, "q8_0");
  EXPECT_EQ(report.bytes_out, std::filesystem::file_size(output));
  EXPECT_EQ(Llm::load(output).generate(std::vector<int32_t>{1}, {.max_new_tokens = 1}).metrics.prompt_tokens, 1);
  std::filesystem::remove(output);
}

TEST(Tools, PlanFillsMemoryPlacementAndSpeeds) {
  const ModelPlan plan = plan_model(testing::kLlamaFile, {.backend = "simd", .max_sequences = 1});
  EXPECT_EQ(plan.architecture, "llama");
  EXPECT_FALSE(plan.placement.empty());
  ASSERT_EQ(plan.weight_bytes.size(), 1U);
  EXPECT_EQ(plan.total_bytes, plan.weight_bytes[0].second + plan.kv_bytes + plan.workspace_bytes + plan.program_bytes);
  EXPECT_GT(plan.program_bytes, 1'000'000U);
  EXPECT_EQ(plan.ram_bytes, plan.total_bytes);
  EXPECT_EQ(plan.fits, true);
  ASSERT_GE(plan.speeds.size(), 2U);
  EXPECT_GT(plan.speeds[0].tokens_per_second, 0);
}

// On a machine that is only named, so that nothing is timed: 1 GB/s and far more arithmetic than a prompt needs.
TEST(Tools, PlanComparesWaysToSplitAModel) {
  const LoadOptions load{.backend = "simd", .max_sequences = 1};
  PlanOptions what{.ranks = 2, .network = "1GbE", .read_gb_per_s = 1, .multiply_top_per_s = 1};
  const ModelPlan plan = plan_model(testing::kLlamaFile, load, what);
  ASSERT_EQ(plan.splits.size(), 2U);
  const SplitPlan& tensors = plan.splits[0];
  const SplitPlan& stages = plan.splits[1];
  EXPECT_EQ(tensors.stages, 1);
  EXPECT_EQ(stages.stages, 2);
  EXPECT_EQ(tensors.ranks[1].layers, plan.layers);
  EXPECT_EQ(stages.ranks[0].layers + stages.ranks[1].layers, plan.layers);
  EXPECT_EQ(stages.ranks[1].vocabulary, 0);
  EXPECT_EQ(stages.sent_bytes_per_token, static_cast<uint64_t>(plan.width) * 4);
  EXPECT_LT(stages.sent_bytes_per_token, tensors.sent_bytes_per_token);
  // One token passes the stages one after the other: never faster than alone.
  EXPECT_LT(stages.speeds.front().split, stages.speeds.front().alone);
  EXPECT_FALSE(stages.pays);
  // The stages of a slow line wait for one row a stage, the parts of a layer for a sum of each.
  EXPECT_LT(stages.speeds.front().exchange_ms, tensors.speeds.front().exchange_ms);
  LoadOptions three = load;
  three.pipeline = 3;
  EXPECT_THROW((void)plan_model(testing::kLlamaFile, three, what), Error) << "three stages of two ranks";
  what.multiply_top_per_s = 0;
  EXPECT_THROW((void)plan_model(testing::kLlamaFile, load, what), Error) << "half a machine";
}

TEST(Tools, VerifyAgreesAndFindsWhatWasPlanted) {
  const LoadOptions options{.backend = "simd"};
  const VerifyReport good = verify_model(testing::kLlamaFile, options, {.tokens = 2});
  EXPECT_FALSE(good.first_divergence);
  EXPECT_GT(good.checked, 0);
  const std::string dump = ::testing::TempDir() + "inferno_api_verify.dump";
  const VerifyReport bad =
      verify_model(testing::kLlamaFile, options, {.tokens = 2, .plant = "attention", .dump_file = dump});
  ASSERT_TRUE(bad.first_divergence);
  EXPECT_NE(bad.first_divergence->ops.find("attention"), std::string::npos);
  EXPECT_TRUE(bad.dumped);
  EXPECT_FALSE(replay_dump(dump, "scalar", options).check.diverges);
  std::filesystem::remove(dump);
}

TEST(Tools, WholeModelsOfTwoBackendsAreTheSame) {
  const WholeModelReport report =
      verify_whole_model(testing::kLlamaFile, {.backend = "simd"}, {.prompts = 2, .tokens = 3});
  EXPECT_EQ(report.verdict, "");
}

TEST(Tools, BenchHasARowForEveryPhaseAndBatch) {
  const std::vector<BenchRow> rows = bench_model(testing::kLlamaFile, {.backend = "simd"},
                                                 {.prompt = 8, .generate = 2, .batches = {1, 2}, .repeat = 1});
  ASSERT_EQ(rows.size(), 3U);
  for (const BenchRow& row : rows) EXPECT_GT(row.tokens_per_second.median, 0);
}

}  // namespace
}  // namespace inferno
