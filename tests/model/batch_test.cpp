// What must not change a result: batch mates, page tables, chunk sizes, the cache, the number of runs.
#include <gtest/gtest.h>

#include <unistd.h>

#include <limits>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "gguf/writer.h"
#include "model/quantize_model.h"
#include "model_runs.h"
#include "support/allocations.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

std::vector<std::string> cpu_backends() {
  std::vector<std::string> names;
  for (const char* name : {"scalar", "simd", "parallel"}) {
    try {
      (void)create_backend(name);
      names.emplace_back(name);
    } catch (const Error&) {
      continue;
    }
  }
  return names;
}

class Steps : public ::testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Engine> engine(DType kv, int32_t sequences = 1, int32_t max_tokens = 512, int32_t rows = 4,
                                        const std::string& type = "q8_0") {
    EngineOptions options;
    options.backend = GetParam();
    options.kv_dtype = kv;
    options.context = 512;
    options.limits = {.max_tokens = max_tokens, .max_sequences = sequences, .max_logit_rows = rows};
    return std::make_unique<Engine>(open_model(long_model(type)), options);
  }
  static std::vector<float> logits(Engine& engine) {
    std::vector<float> rows(static_cast<size_t>(engine.decoder().logit_rows() * engine.model().config().vocabulary));
    engine.decoder().download_logits(rows);
    return rows;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Steps, ::testing::ValuesIn(cpu_backends()),
                         [](const auto& info) { return info.param; });

TEST_P(Steps, AStepThatMixesPrefillAndDecodeIsBitIdenticalToRunningThemApart) {
  for (const DType kv : {DType::f32, DType::bf16}) {
    auto alone = engine(kv);
    const int32_t vocabulary = alone->model().config().vocabulary;
    const std::vector<int32_t> a = tokens_of(1, 300, vocabulary);
    const std::vector<int32_t> b = tokens_of(2, 45, vocabulary);
    BareSequence(*alone).forward(0, a, 1);
    const std::vector<float> a_alone = logits(*alone);
    BareSequence(*alone).forward(0, b, 1);
    const std::vector<float> b_alone = logits(*alone);

    auto both = engine(kv, 2);
    BareSequence first(*both);
    first.forward(0, std::span(a).first(299), 0);  // a is cached but for its last token
    KvSequence second(both->cache());
    ASSERT_TRUE(first.kv().resize(300));
    ASSERT_TRUE(second.resize(45));
    both->decoder().clear();
    both->decoder().add(first.kv(), 299, std::span(a).last(1), 1);
    both->decoder().add(second, 0, b, 1);
    both->decoder().run();
    const std::vector<float> mixed = logits(*both);
    const auto v = static_cast<size_t>(vocabulary);
    EXPECT_TRUE(std::equal(a_alone.begin(), a_alone.end(), mixed.begin()));
    EXPECT_TRUE(std::equal(b_alone.begin(), b_alone.end(), mixed.begin() + static_cast<ptrdiff_t>(v)));
  }
}

TEST_P(Steps, InterleavedPagesOfTwoSequencesGiveTheSameBits) {
  auto alone = engine(DType::bf16);
  const int32_t vocabulary = alone->model().config().vocabulary;
  const std::vector<int32_t> a = tokens_of(3, 400, vocabulary);
  const std::vector<int32_t> b = tokens_of(4, 400, vocabulary);
  BareSequence(*alone).forward(0, a, 1);
  const std::vector<float> a_alone = logits(*alone);
  BareSequence(*alone).forward(0, b, 1);
  const std::vector<float> b_alone = logits(*alone);

  auto both = engine(DType::bf16, 2);
  BareSequence first(*both);
  BareSequence second(*both);
  for (int32_t length = 50; length <= 400; length += 50) {  // alternating, so that their pages interleave
    const auto begin = static_cast<size_t>(length - 50);
    first.forward(length - 50, std::span(a).subspan(begin, 50), 1);
    const std::vector<float> a_now = logits(*both);
    second.forward(length - 50, std::span(b).subspan(begin, 50), 1);
    const std::vector<float> b_now = logits(*both);
    if (length == 400) {
      EXPECT_EQ(a_now, a_alone);
      EXPECT_EQ(b_now, b_alone);
    }
  }
  const std::span<const int32_t> pages = first.kv().pages();
  EXPECT_NE(pages[1], pages[0] + 1) << "the test must really interleave";
}

TEST_P(Steps, ChunkSizesDoNotChangeABit) {
  const std::pair<DType, const char*> cases[] = {
      {DType::f32, "f32"}, {DType::bf16, "bf16"}, {DType::f16, "f16"}, {DType::bf16, "q8_0"}, {DType::bf16, "q4_0"}};
  for (const auto& [kv, type] : cases) {
    auto whole = engine(kv, 1, 512, 4, type);
    const std::vector<int32_t> tokens = tokens_of(5, 300, whole->model().config().vocabulary);
    BareSequence(*whole).forward(0, tokens, 4);
    const std::vector<float> expected = logits(*whole);
    for (const int32_t chunk : {1, 7, 32, 256}) {
      auto chunked = engine(kv, 1, chunk, std::min(chunk, 4), type);
      const auto rows = static_cast<size_t>(std::min(chunk, 4));
      // Feed so that the last chunk holds the compared rows.
      const auto head = tokens.size() - rows;
      BareSequence sequence(*chunked);
      sequence.forward(0, std::span(tokens).first(head), 0);
      sequence.forward(static_cast<int32_t>(head), std::span(tokens).last(rows), static_cast<int32_t>(rows));
      const std::vector<float> made = logits(*chunked);
      EXPECT_TRUE(std::equal(made.rbegin(), made.rend(), expected.rbegin())) << "chunk " << chunk << " " << type;
    }
  }
}

TEST_P(Steps, FewerWantedLogitsDoNotChangeThemAndNoneStillFillTheCache) {
  auto all = engine(DType::bf16, 1, 512, 64);
  const int32_t vocabulary = all->model().config().vocabulary;
  const std::vector<int32_t> tokens = tokens_of(5, 64, vocabulary);
  const std::span<const int32_t> first = std::span(tokens).first(40);
  BareSequence(*all).forward(0, tokens, 64);
  const std::vector<float> expected = logits(*all);
  const auto last_rows = [&](size_t rows) {
    return std::vector<float>(expected.end() - static_cast<ptrdiff_t>(rows) * vocabulary, expected.end());
  };
  auto some = engine(DType::bf16, 1, 512, 64);
  BareSequence(*some).forward(0, tokens, 3);
  EXPECT_EQ(logits(*some), last_rows(3));
  auto none = engine(DType::bf16, 1, 512, 64);
  BareSequence sequence(*none);
  sequence.forward(0, first, 0);
  sequence.forward(40, std::span(tokens).subspan(40), 1);
  EXPECT_EQ(logits(*none), last_rows(1));
}

TEST_P(Steps, KvOffAndBasicGiveTheSameTokens) {
  for (const DType kv : {DType::f32, DType::bf16, DType::f16}) {
    auto e = engine(kv);
    const std::vector<int32_t> prompt = tokens_of(6, 20, e->model().config().vocabulary);
    Request request{.prompt = prompt, .max_new_tokens = 30, .stop_at_end = false};
    const std::vector<int32_t> cached = generate(*e, request).samples.front().ids;
    request.recompute = true;
    EXPECT_EQ(generate(*e, request).samples.front().ids, cached);
  }
}

TEST_P(Steps, ASeedGivesTheSameTextTwiceAndAnotherSeedAnother) {
  auto e = engine(DType::f32);
  const std::vector<int32_t> prompt = tokens_of(7, 10, e->model().config().vocabulary);
  const std::vector<int32_t> first = generate_ids(*e, prompt, 40, {.temperature = 1, .seed = 42});
  EXPECT_EQ(generate_ids(*e, prompt, 40, {.temperature = 1, .seed = 42}), first);
  EXPECT_NE(generate_ids(*e, prompt, 40, {.temperature = 1, .seed = 43}), first);
}

TEST_P(Steps, ARowIsSampledTheSameWhateverTheOtherRowsAskFor) {
  auto e = engine(DType::f32);
  const int32_t vocabulary = e->model().config().vocabulary;
  const std::vector<int32_t> tokens = tokens_of(10, 40, vocabulary);
  const std::vector<LogitBias> bias = {{7, -std::numeric_limits<float>::infinity()}, {11, 2}};
  const std::vector<uint32_t> allowed(static_cast<size_t>(bitset_words(vocabulary)), 0x55555555U);
  const std::vector<uint32_t> nothing(allowed.size(), 0);
  const std::vector<SampleRequest> requests = {
      {.settings = {.temperature = 0.9F, .top_p = 0.9F, .frequency_penalty = 0.3F, .penalty_window = -1, .seed = 1},
       .position = 37,
       .history = std::span(tokens).first(37),
       .bias = bias,
       .top_logprobs = 5},
      {},
      {.settings = {.temperature = 1, .seed = 2}, .position = 39, .allowed = allowed, .top_logprobs = 0},
      {.allowed = nothing}};
  // The last four tokens in one step.
  BareSequence sequence(*e);
  sequence.forward(0, std::span(tokens).first(36), 0);
  ASSERT_TRUE(sequence.kv().resize(40));
  Decoder& decoder = e->decoder();
  decoder.clear();
  decoder.add(sequence.kv(), 36, std::span(tokens).last(4), 4);
  decoder.run(requests);
  const std::vector<int32_t> drawn(decoder.sampled().begin(), decoder.sampled().end());
  std::vector<std::vector<TokenLogprob>> logprobs;
  for (int32_t r = 0; r < 4; ++r) logprobs.emplace_back(decoder.logprobs(r).begin(), decoder.logprobs(r).end());
  EXPECT_EQ(logprobs[0].size(), 6U);
  EXPECT_EQ(logprobs[2].size(), 1U);
  EXPECT_EQ(drawn[2] % 2, 0);
  EXPECT_EQ(drawn[3], kNothingAllowed);

  for (int32_t r = 0; r < 4; ++r) {
    const auto at = static_cast<size_t>(r);
    BareSequence(*e).forward(0, std::span(tokens).first(37 + at), 1, &requests[at]);
    EXPECT_EQ(decoder.sampled()[0], drawn[at]) << r;
    const std::span<const TokenLogprob> alone = decoder.logprobs(0);
    ASSERT_EQ(alone.size(), logprobs[at].size()) << r;
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(alone[i].id, logprobs[at][i].id) << r;
      EXPECT_EQ(alone[i].logprob, logprobs[at][i].logprob) << r;
    }
  }
}

TEST_P(Steps, ADecodeStepAllocatesNothing) {
  auto e = engine(DType::bf16);
  const int32_t vocabulary = e->model().config().vocabulary;
  const std::vector<int32_t> prompt = tokens_of(8, 100, vocabulary);
  const std::vector<LogitBias> bias(kMaxLogitBias, {3, 0.01F});
  const std::vector<uint32_t> allowed(static_cast<size_t>(bitset_words(vocabulary)), ~1U);
  const SampleRequest plain{.settings = {.temperature = 0.8F, .top_k = 40, .top_p = 0.9F}};
  const SampleRequest all{.settings = {.temperature = 0.8F,
                                       .top_p = 0.9F,
                                       .repeat_penalty = 1.1F,
                                       .presence_penalty = 0.1F,
                                       .penalty_window = -1},
                          .history = prompt,
                          .allowed = allowed,
                          .bias = bias,
                          .top_logprobs = kMaxTopLogprobs};
  BareSequence sequence(*e);
  sequence.forward(0, prompt, 1, &plain);
  const int64_t before = allocations();
  for (int32_t i = 0; i < 200; ++i) {
    const int32_t token = e->decoder().sampled()[0];
    sequence.forward(100 + i, {&token, 1}, 1, i % 2 == 0 ? &all : &plain);
    (void)e->decoder().logprobs(0);
  }
  EXPECT_EQ(allocations(), before);
}

// More threads than CPUs: each is late at times, and others steal its chunks.
EngineOptions options_for(int threads, DType kv) {
  EngineOptions options;
  options.backend = "simd";
  options.kv_dtype = kv;
  options.context = 512;
  if (threads > 1) {
    options.decorate = [=](std::unique_ptr<Backend> /*unused*/) -> std::unique_ptr<Backend> {
      return std::make_unique<CpuBackend>(
          "parallel", best_kernels(),
          std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = threads, .allow_oversubscription = true}), kv);
    };
  }
  return options;
}

// Prompts of one block and of several; of two in a step the second begins inside a tile of tokens.
TEST(ManyThreads, PromptsHaveTheBitsOfOneThread) {
  using Lengths = std::vector<int32_t>;
  const auto prefill = [](const std::string& type, DType kv, int threads, const Lengths& lengths) {
    EngineOptions options = options_for(threads, kv);
    options.limits = {.max_tokens = 512, .max_sequences = 2, .max_logit_rows = 6};
    Engine engine(open_model(long_model(type)), options);
    std::vector<std::unique_ptr<KvSequence>> sequences;
    engine.decoder().clear();
    for (const int32_t length : lengths) {
      sequences.push_back(std::make_unique<KvSequence>(engine.cache()));
      EXPECT_TRUE(sequences.back()->resize(length));
      engine.decoder().add(*sequences.back(), 0, tokens_of(length, length, engine.model().config().vocabulary), 3);
    }
    engine.decoder().run();
    std::vector<float> rows(static_cast<size_t>(engine.decoder().logit_rows() * engine.model().config().vocabulary));
    engine.decoder().download_logits(rows);
    return rows;
  };
  for (const auto& [type, kv] : {std::pair{"q8_0", DType::bf16}, {"q4_k_m", DType::bf16}, {"bf16", DType::f32}}) {
    for (const Lengths& lengths : {Lengths{33}, Lengths{90}, Lengths{333}, Lengths{157, 100}, Lengths{301, 211}}) {
      const std::vector<float> one = prefill(type, kv, 1, lengths);
      for (const int threads : {2, 4, 7}) {
        EXPECT_EQ(prefill(type, kv, threads, lengths), one)
            << type << ", " << lengths[0] << ", " << threads << " threads";
      }
    }
  }
}

TEST(ManyThreads, DecodingHasTheBitsOfOneThread) {
  constexpr int32_t kPrompt = 250;
  constexpr int32_t kSteps = 12;  // into the second attention span
  const auto decode = [&](const std::string& type, DType kv, int threads) {
    Engine engine(open_model(long_model(type)), options_for(threads, kv));
    const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
    const std::vector<int32_t> tokens = tokens_of(3, kPrompt + kSteps, static_cast<int32_t>(vocabulary));
    std::vector<float> rows(kSteps * vocabulary);
    BareSequence sequence(engine);
    sequence.forward(0, std::span(tokens).first(kPrompt), 1);
    for (int32_t i = 0; i < kSteps; ++i) {
      const auto at = static_cast<size_t>(i);
      sequence.forward(kPrompt + i, std::span(tokens).subspan(kPrompt + at, 1), 1);
      engine.decoder().download_logits(std::span(rows).subspan(at * vocabulary, vocabulary));
    }
    return rows;
  };
  for (const auto& [type, kv] : {std::pair{"q8_0", DType::bf16}, {"q4_k_m", DType::bf16}, {"f32", DType::f32}}) {
    const std::vector<float> one = decode(type, kv, 1);
    for (const int threads : {2, 4, 5, 16}) {
      EXPECT_EQ(decode(type, kv, threads), one) << type << ", " << threads << " threads";
    }
  }
}

TEST(FusedOff, DefaultBodiesGiveTheSameGreedyTokens) {
  EngineOptions options;
  options.backend = "scalar";
  options.context = 128;
  Engine fused(open_model(fixture("qwen2-tied.gguf")), options);
  options.backend_options.fused = false;
  Engine plain(open_model(fixture("qwen2-tied.gguf")), options);
  const std::vector<int32_t> prompt = tokens_of(10, 20, fused.model().config().vocabulary);
  EXPECT_EQ(generate_ids(plain, prompt, 20), generate_ids(fused, prompt, 20));
}

}  // namespace
}  // namespace inferno::testing
