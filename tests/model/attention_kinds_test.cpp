// Models whose layers attend in other ways: windows, heads that differ from layer to layer, caches that layers share,
// inputs of layers, and one row for all heads.
#include <gtest/gtest.h>

#include <list>

#include "model_runs.h"
#include "support/allocations.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;
constexpr int32_t kVocabulary = 1000;

MetadataValue number(uint32_t value) {
  return MetadataValue(value);
}

// Two kinds of layers with 40 and all positions, and heads and caches of their own; the last three layers read those of
// others. Every layer has an input of 32 elements, or there are experts.
std::vector<MetadataEntry> gemma_settings(bool experts) {
  std::vector<MetadataEntry> entries = {
      {"gemma4.attention.sliding_window", number(40)},
      {"gemma4.attention.sliding_window_pattern",
       MetadataValue(MetadataArray{std::vector<bool>{true, false, true, true, false, true}})},
      {"gemma4.attention.head_count_kv", MetadataValue(MetadataArray{std::vector<int32_t>{4, 1, 4, 4, 1, 4}})},
      {"gemma4.attention.key_length_swa", number(32)},
      {"gemma4.attention.value_length_swa", number(32)},
      {"gemma4.rope.dimension_count_swa", number(32)},
      {"gemma4.final_logit_softcapping", MetadataValue(30.0F)}};
  if (experts) {
    entries.push_back({"gemma4.feed_forward_length", number(384)});
  } else {
    entries.push_back({"gemma4.attention.shared_kv_layers", number(3)});
    entries.push_back({"gemma4.embedding_length_per_layer_input", number(32)});
  }
  return entries;
}

// Queries in two products; experts in groups after a dense layer.
std::vector<MetadataEntry> latent_settings() {
  return {{"deepseek2.attention.head_count_kv", number(1)},     {"deepseek2.attention.key_length", number(96)},
          {"deepseek2.attention.value_length", number(64)},     {"deepseek2.attention.kv_lora_rank", number(64)},
          {"deepseek2.attention.q_lora_rank", number(96)},      {"deepseek2.attention.key_length_mla", number(64)},
          {"deepseek2.attention.value_length_mla", number(32)}, {"deepseek2.rope.dimension_count", number(32)},
          {"deepseek2.leading_dense_block_count", number(1)},   {"deepseek2.expert_group_count", number(4)},
          {"deepseek2.expert_group_used_count", number(2)},     {"deepseek2.expert_shared_count", number(1)},
          {"deepseek2.expert_gating_func", number(2)}};
}

std::unique_ptr<SyntheticModel> model_like(const std::string& family, std::string_view type) {
  ModelShape shape = find_model_shape("tiny");
  const bool latent = family == "deepseek2";
  shape.architecture = latent ? "deepseek2" : "gemma4";
  shape.layers = latent ? 3 : 6;
  if (family != "gemma4e") {
    shape.experts = 8;
    shape.experts_used = 3;
    shape.ffn = 256;
  }
  return std::make_unique<SyntheticModel>(shape, type, 1,
                                          latent ? latent_settings() : gemma_settings(family == "gemma4moe"));
}

EngineOptions with(const std::string& backend, int threads, int32_t sequences = 1, bool every_row = false) {
  EngineOptions options;
  options.backend = backend;
  options.backend_options.threads = threads;
  options.kv_dtype = DType::f32;
  options.context = 512;
  options.all_logits = every_row;
  options.limits = {.max_sequences = sequences};
  return options;
}

class AttentionKinds : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<SyntheticModel> file_ = model_like(GetParam(), "Q8_0");
};
INSTANTIATE_TEST_SUITE_P(Families, AttentionKinds, ::testing::Values("deepseek2", "gemma4e", "gemma4moe"),
                         [](const auto& info) { return info.param; });

// Longer than a window, a page and a span of attention.
const std::vector<int32_t>& text() {
  static const std::vector<int32_t> tokens = tokens_of(1, 300, kVocabulary);
  return tokens;
}

Request request_for(std::vector<int32_t> tokens, int32_t generated) {
  Request request{.prompt = std::move(tokens), .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  request.sampling = {.temperature = 1, .seed = 5};
  return request;
}

std::vector<int32_t> ids_without_reuse(Engine& engine, Request request) {
  request.reuse_prefix = false;
  return generate(engine, std::move(request)).samples[0].ids;
}

TEST_P(AttentionKinds, BitsDependOnNeitherChunksNorThreads) {
  for (const char* type : {"F32", "Q4_K"}) {
    const auto file = model_like(GetParam(), type);
    Engine engine(*file, with("simd", 1, 1, true));
    const std::vector<float> whole = all_logits(engine, text());
    for (const float logit : whole) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_EQ(all_logits(engine, text(), 7), whole) << type << ", in sevens";
    EXPECT_EQ(all_logits(engine, std::span(text()).first(90), 1),
              std::vector<float>(whole.begin(), whole.begin() + 90 * kVocabulary))
        << type << ", one by one";
    for (const int threads : {2, 5}) {  // threads steal from each other from 4 on
      Engine many(*file, with("parallel", threads, 1, true));
      EXPECT_EQ(all_logits(many, text(), 70), whole) << type << ", " << threads << " threads";
      // From the second span on threads divide the spans that a token sees.
      EXPECT_EQ(all_logits(many, text(), 1), whole) << type << ", " << threads << " threads, one by one";
    }
  }
}

TEST_P(AttentionKinds, BitsDoNotDependOnBatchMates) {
  EngineOptions options = with("parallel", 2, 3);
  options.limits.max_tokens = 256;
  options.limits.max_logit_rows = 128;
  Engine engine(*file_, options);
  const std::vector<std::vector<int32_t>> prompts = {tokens_of(2, 1, kVocabulary), tokens_of(3, 90, kVocabulary),
                                                     tokens_of(4, 17, kVocabulary)};
  std::vector<float> alone;
  for (const std::vector<int32_t>& ids : prompts) {
    const std::vector<float> rows = all_logits(engine, ids);
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  std::list<KvSequence> sequences;
  engine.decoder().clear();
  for (const std::vector<int32_t>& ids : prompts) {
    const auto count = static_cast<int32_t>(ids.size());
    KvSequence& sequence = sequences.emplace_back(engine.cache());
    ASSERT_TRUE(sequence.resize(count));
    engine.decoder().add(sequence, 0, ids, count);
  }
  engine.decoder().run();
  std::vector<float> together(alone.size());
  engine.decoder().download_logits(together);
  EXPECT_EQ(together, alone);
}

TEST_P(AttentionKinds, PromptsWithTheSameBeginningReuseItsPagesWithTheSameBits) {
  Engine engine(*file_, with("simd", 1, 2));
  const Request request = request_for(tokens_of(1, 150, kVocabulary), 20);
  const RequestResult first = generate(engine, request);
  Request other = request;
  other.prompt[140] = (other.prompt[140] + 1) % kVocabulary;
  const std::vector<int32_t> expected = ids_without_reuse(engine, other);
  const RequestResult second = generate(engine, other);
  EXPECT_EQ(second.metrics.reused_tokens, 140) << "two pages, and part of a third in a copy";
  EXPECT_EQ(second.samples[0].ids, expected);
  EXPECT_EQ(generate(engine, request).samples[0].ids, first.samples[0].ids);
  Request several = request;  // pages that samples share are copied when they write
  several.samples = 2;
  const RequestResult samples = generate(engine, several);
  EXPECT_EQ(samples.samples[0].ids, first.samples[0].ids);
}

TEST_P(AttentionKinds, StepsOfAnySizeAllocateNothing) {
  Engine engine(*file_, with("parallel", 2));
  BareSequence sequence(engine);
  sequence.forward(0, std::span(text()).first(100), 1);
  int32_t position = 100;
  const int64_t before = allocations();
  for (const size_t count : {1, 1, 2, 17, 1}) {
    sequence.forward(position, std::span(text()).first(count), 1);
    position += static_cast<int32_t>(count);
  }
  EXPECT_EQ(allocations(), before);
}

TEST(AttentionKindsCache, RowsOfLatentAttentionInEveryTypeStayNearTheExactOnes) {
  const auto file = model_like("deepseek2", "Q8_0");
  EngineOptions options = with("simd", 1, 1, true);
  Engine exact(*file, options);
  const std::vector<int32_t> ids = tokens_of(8, 80, kVocabulary);
  const std::vector<float> expected = all_logits(exact, ids);
  const double scale = rms_difference(expected, std::vector<float>(expected.size()));
  for (const DType type : {DType::bf16, DType::f16, DType::q8_0}) {
    options.kv_dtype = type;
    Engine engine(*file, options);
    // Of random weights; rows in another order would be off by the scale itself.
    EXPECT_LT(rms_difference(all_logits(engine, ids), expected), 0.2 * scale) << dtype_name(type);
  }
}

TEST(AttentionKindsCache, LatentAttentionKeepsOneRowOfEachPosition) {
  const auto file = model_like("deepseek2", "Q8_0");
  const Engine engine(*file, with("simd", 1));
  const std::vector<KvLayerShape> layers = cache_layers(engine.model().config());
  EXPECT_EQ(KvCache::page_bytes({.layers = layers, .dtype = DType::f32}), 3U * kPage * 96 * sizeof(float));
}

TEST(AttentionKindsCache, LayersThatReadTheCacheOfOthersHaveNone) {
  const auto file = model_like("gemma4e", "Q8_0");
  const Engine engine(*file, with("simd", 1));
  const std::vector<KvLayerShape> layers = cache_layers(engine.model().config());
  const uint64_t floats = 2U * kPage * (4 * 32 + 1 * 64 + 4 * 32);
  EXPECT_EQ(KvCache::page_bytes({.layers = layers, .dtype = DType::f32}), floats * sizeof(float));
}

}  // namespace
}  // namespace inferno::testing
