// Models with recurrent layers: bits that depend on nothing but the sequence, states that begin, end and are continued
// with it, and what requests reuse of each other.
#include <gtest/gtest.h>

#include <list>

#include "base/error.h"
#include "model_runs.h"
#include "support/allocations.h"
#include "support/sanitized.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;
constexpr int32_t kVocabulary = 1000;

// Mamba-2 in three of five layers, or layers of one kind each with MLPs among them.
std::unique_ptr<SyntheticModel> mamba_of(const std::string& family, std::string_view type) {
  const bool nemotron = family == "nemotron_h";
  ModelShape shape = find_model_shape("tiny");
  shape.architecture = nemotron ? "nemotron_h" : "granitehybrid";
  shape.layers = nemotron ? 6 : 5;
  std::vector<MetadataEntry> changes;
  const auto set = [&](const char* key, MetadataValue value) {
    changes.push_back({family + "." + key, std::move(value)});
  };
  const auto sizes = [](std::vector<int32_t> values) { return MetadataValue(MetadataArray{std::move(values)}); };
  set("ssm.conv_kernel", MetadataValue(uint32_t{4}));
  set("ssm.state_size", MetadataValue(uint32_t{32}));
  set("ssm.group_count", MetadataValue(nemotron ? uint32_t{2} : uint32_t{1}));
  set("ssm.time_step_rank", MetadataValue(uint32_t{6}));
  set("ssm.inner_size", MetadataValue(uint32_t{6 * 36}));
  set("attention.head_count_kv", sizes(nemotron ? std::vector{0, 0, 0, 4, 0, 0} : std::vector{0, 4, 0, 4, 0}));
  if (nemotron) set("feed_forward_length", sizes({0, 512, 0, 0, 0, 512}));
  return std::make_unique<SyntheticModel>(shape, type, 1, changes);
}

// The delta rule in three of four layers, or convolutions in three of five with one at each end, or Mamba-2.
std::unique_ptr<SyntheticModel> model_of(const std::string& family, std::string_view type) {
  if (family == "granitehybrid" || family == "nemotron_h") return mamba_of(family, type);
  if (family == "qwen35") return std::make_unique<SyntheticModel>(find_model_shape("tiny-qwen3.5"), type);
  ModelShape shape = find_model_shape("tiny");
  shape.architecture = "lfm2";
  shape.layers = 5;
  return std::make_unique<SyntheticModel>(
      shape, type, 1,
      std::vector<MetadataEntry>{
          {"lfm2.attention.head_count_kv", MetadataValue(MetadataArray{std::vector<int32_t>{0, 4, 0, 4, 0}})},
          {"lfm2.shortconv.l_cache", MetadataValue(uint32_t{3})}});
}

struct EngineSetup {
  std::string backend = "simd";
  int threads = 1;
  int32_t sequences = 1;
  int32_t pages = 0;  // 0: for all sequences
  int32_t max_tokens = 0;
  bool all_logits = false;
};

EngineOptions options_of(const EngineSetup& setup) {
  EngineOptions options;
  options.backend = setup.backend;
  options.backend_options.threads = setup.threads;
  options.kv_dtype = DType::f32;
  options.context = 512;
  options.all_logits = setup.all_logits;
  options.limits = {.max_tokens = setup.max_tokens, .max_sequences = setup.sequences};
  return options;
}

class Recurrent : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::unique_ptr<Engine> make(const EngineSetup& setup) const {
    EngineOptions options = options_of(setup);
    if (setup.pages > 0) {
      const Engine one(*file_, options_of({}));
      const uint64_t page = KvCache::page_bytes({.layers = cache_layers(one.model().config()), .dtype = DType::f32});
      options.kv_memory = static_cast<uint64_t>(setup.pages) * page;
    }
    return std::make_unique<Engine>(*file_, options);
  }
  std::unique_ptr<SyntheticModel> file_ = model_of(GetParam(), "Q8_0");
};
INSTANTIATE_TEST_SUITE_P(Families, Recurrent, ::testing::Values("granitehybrid", "lfm2", "nemotron_h", "qwen35"),
                         [](const auto& info) { return info.param; });

// More tokens than a page, and than the delta rule prepares at a time.
const std::vector<int32_t>& prompt() {
  static const std::vector<int32_t> tokens = tokens_of(1, 150, kVocabulary);
  return tokens;
}

Request request_of(std::vector<int32_t> tokens, int32_t generated) {
  Request request{.prompt = std::move(tokens), .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  request.sampling = {.temperature = 1, .seed = 5};
  return request;
}

std::vector<std::vector<int32_t>> ids_of(const RequestResult& result) {
  std::vector<std::vector<int32_t>> ids;
  for (const Completion& sample : result.samples) ids.push_back(sample.ids);
  return ids;
}

// What the request makes where nothing is reused.
std::vector<std::vector<int32_t>> fresh_ids(Engine& engine, Request request) {
  request.reuse_prefix = false;
  return ids_of(generate(engine, std::move(request)));
}

TEST_P(Recurrent, BitsDependOnNeitherChunksNorThreads) {
  for (const char* type : {"F32", "Q4_K"}) {
    const auto file = model_of(GetParam(), type);
    for (const char* backend : {"scalar", "simd"}) {
      if (backend == std::string("scalar") && (kSanitized || type != std::string("F32"))) continue;  // it is slow
      Engine engine(*file, options_of({.backend = backend, .all_logits = true}));
      const std::vector<float> whole = all_logits(engine, prompt());
      for (const float logit : whole) ASSERT_TRUE(std::isfinite(logit));
      EXPECT_EQ(all_logits(engine, prompt(), 1), whole) << type << ' ' << backend << ", one by one";
      EXPECT_EQ(all_logits(engine, prompt(), 7), whole) << type << ' ' << backend << ", in sevens";
      if (backend != std::string("simd")) continue;
      for (const int threads : {2, 5}) {  // threads steal from each other from 4 on
        Engine many(*file, options_of({.backend = "parallel", .threads = threads, .all_logits = true}));
        EXPECT_EQ(all_logits(many, prompt()), whole) << type << ", " << threads << " threads";
        EXPECT_EQ(all_logits(many, prompt(), 7), whole) << type << ", " << threads << " threads, in sevens";
      }
    }
  }
}

TEST_P(Recurrent, BitsDoNotDependOnBatchMates) {
  EngineOptions options = options_of({.backend = "parallel", .threads = 2, .sequences = 3});
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

TEST_P(Recurrent, ASequenceThatBeginsAgainForgetsWhatItWas) {
  const auto engine = make({.all_logits = true});
  const std::vector<int32_t> other = tokens_of(9, 40, kVocabulary);
  const auto logits_after = [&](BareSequence& sequence) {
    sequence.forward(0, other, 1);
    std::vector<float> row(kVocabulary);
    engine->decoder().download_logits(row);
    return row;
  };
  std::vector<float> expected;
  {
    BareSequence fresh(*engine);
    expected = logits_after(fresh);
  }
  BareSequence used(*engine);
  used.forward(0, prompt(), 1);
  EXPECT_EQ(logits_after(used), expected);
}

TEST_P(Recurrent, StepsOfAnySizeAllocateNothing) {
  const auto engine = make({.backend = "parallel", .threads = 2});
  BareSequence sequence(*engine);
  sequence.forward(0, prompt(), 1);
  auto position = static_cast<int32_t>(prompt().size());
  const int64_t before = allocations();
  for (const size_t count : {1, 1, 2, 17, 1}) {
    sequence.forward(position, std::span(prompt()).first(count), 1);
    position += static_cast<int32_t>(count);
  }
  EXPECT_EQ(allocations(), before);
}

TEST_P(Recurrent, ADecodeStepOfSeveralRequestsAllocatesNothing) {
  const auto engine = make({.sequences = 2});
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int32_t i = 0; i < 2; ++i) {
    tickets.push_back(engine->scheduler().submit(request_of(tokens_of(i, 100, kVocabulary), 60)));
  }
  for (int i = 0; i < 10; ++i) engine->scheduler().step();
  const int64_t before = allocations();
  for (int i = 0; i < 40; ++i) engine->scheduler().step();  // a page ends in between
  EXPECT_EQ(allocations(), before);
  EXPECT_FALSE(tickets[0]->is_done());
  engine->scheduler().cancel_all();
  while (engine->scheduler().step()) {
  }
}

TEST_P(Recurrent, SlotsComeBackWhenRequestsEndAndWhenTheyAreCancelled) {
  const auto engine = make({.sequences = 3});
  const int32_t before = engine->cache().slots().available();
  EXPECT_EQ(before, 3);
  (void)generate(*engine, request_of(prompt(), 5));
  EXPECT_EQ(engine->cache().slots().available(), before);
  const auto ticket = engine->scheduler().submit(request_of(prompt(), 50));
  engine->scheduler().step();
  EXPECT_EQ(engine->cache().slots().available(), before - 1);
  ticket->cancel();
  engine->scheduler().step();
  EXPECT_TRUE(ticket->is_done());
  EXPECT_EQ(engine->cache().slots().available(), before);
}

TEST_P(Recurrent, SamplesOfOnePromptContinueCopiesOfItsState) {
  const auto engine = make({.sequences = 4});
  Request request = request_of(prompt(), 12);
  request.samples = 4;
  const std::vector<std::vector<int32_t>> expected = fresh_ids(*engine, request);
  const int64_t before = engine->scheduler().stats().prompt_tokens;
  EXPECT_EQ(ids_of(generate(*engine, request)), expected);
  for (size_t i = 1; i < expected.size(); ++i) EXPECT_NE(expected[i], expected[0]);
  // The prompt once; of the others what follows the last page that may be reused.
  EXPECT_EQ(engine->scheduler().stats().prompt_tokens - before, 150 + 3 * (150 - 2 * kPage));
}

TEST_P(Recurrent, ATextThatGoesOnReusesPagesUpToTheLastSnapshotAndHasTheSameBits) {
  const auto engine = make({});
  Request request = request_of(prompt(), 60);
  const RequestResult first = generate(*engine, request);
  EXPECT_EQ(first.metrics.reused_tokens, 0);
  EXPECT_EQ(first.metrics.reuse_end, ReuseEnd::unseen);

  const RequestResult again = generate(*engine, request);
  EXPECT_EQ(again.metrics.reused_tokens, 2 * kPage);
  EXPECT_EQ(ids_of(again), ids_of(first));

  Request longer = request;
  longer.prompt.insert(longer.prompt.end(), first.samples[0].ids.begin(), first.samples[0].ids.end());
  longer.prompt.push_back(7);
  const std::vector<std::vector<int32_t>> expected = fresh_ids(*engine, longer);
  const RequestResult continued = generate(*engine, longer);
  EXPECT_EQ(continued.metrics.reused_tokens, 3 * kPage) << "150 + 60 tokens: a page ended after the prompt";
  EXPECT_EQ(ids_of(continued), expected);
}

TEST_P(Recurrent, PagesWithoutTheirStateAreNotReusedAndTheResultSaysWhy) {
  const auto engine = make({});
  const Request request = request_of(prompt(), 2);
  (void)generate(*engine, request);
  Request other = request;  // one page and a half are the same, and there is no state at the end of the first
  other.prompt[100] = (other.prompt[100] + 1) % kVocabulary;
  const std::vector<std::vector<int32_t>> expected = fresh_ids(*engine, other);
  const RequestResult result = generate(*engine, other);
  EXPECT_EQ(result.metrics.reused_tokens, 0);
  EXPECT_EQ(result.metrics.reuse_end, ReuseEnd::recurrent);
  EXPECT_EQ(ids_of(result), expected);
}

TEST_P(Recurrent, APageBudgetThatPreemptsFinishesAllRequestsWithTheSameBits) {
  constexpr int32_t kRequests = 5;
  // 100 + 100 tokens are 4 pages each.
  const auto small = make({.sequences = kRequests, .pages = 9});
  const auto alone = make({});
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int32_t i = 0; i < kRequests; ++i) {
    tickets.push_back(small->scheduler().submit(request_of(tokens_of(i, 100, kVocabulary), 100)));
  }
  while (small->scheduler().step()) {
  }
  EXPECT_GT(small->scheduler().stats().preemptions, 0) << "the test must run out of pages";
  EXPECT_EQ(small->cache().slots().available(), kRequests);
  for (int32_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(ids_of(tickets[static_cast<size_t>(i)]->result()),
              fresh_ids(*alone, request_of(tokens_of(i, 100, kVocabulary), 100)))
        << i;
  }
}

// Row `row` of a weight is row `file_row` of the tensor.
void expect_row(const ModelFile& file, const std::string& tensor, int64_t file_row, const Weight& weight, int64_t row) {
  const auto bytes = static_cast<size_t>(row_bytes(weight.dtype(), weight.cols()));
  std::vector<std::byte> expected(bytes);
  std::vector<std::byte> loaded(bytes);
  file.read_tensor(file.get_tensor(tensor), expected, static_cast<uint64_t>(file_row) * bytes);
  weight.read_row(row, loaded);
  EXPECT_EQ(loaded, expected) << tensor << ' ' << file_row;
}

TEST(RecurrentFiles, RowsThatAFileHasHeadByHeadAreSplit) {
  ModelShape shape = find_model_shape("tiny-qwen3.5");
  shape.architecture = "qwen3next";
  shape.experts = 4;
  shape.experts_used = 2;
  const SyntheticModel file(shape, "Q8_0");
  const Engine engine(file, options_of({}));
  const LayerWeights& attention = engine.model().layer(3);
  for (int64_t head = 0; head < shape.q_heads; ++head) {
    for (int64_t row = 0; row < shape.head_dim; ++row) {
      const int64_t own = head * shape.head_dim + row;
      expect_row(file, "blk.3.attn_q.weight", 2 * head * shape.head_dim + row, *attention.wq, own);
      expect_row(file, "blk.3.attn_q.weight", (2 * head + 1) * shape.head_dim + row, *attention.w_gate, own);
    }
  }
  const LayerWeights& delta = engine.model().layer(0);  // two value heads for each key head
  for (int64_t head = 0; head < 4; ++head) {
    const int64_t in_file = head / 2 * 4 + head % 2;
    expect_row(file, "blk.0.ssm_ba.weight", in_file, *delta.beta, head);
    expect_row(file, "blk.0.ssm_ba.weight", in_file + 2, *delta.alpha, head);
  }
}

// A weight that is no number spreads into the states: the next request names the same op, whatever slots hold by then.
TEST_P(Recurrent, LogitsThatAreNoNumbersAreAnErrorThatNamesWhereTheyBegan) {
  class Damaged final : public ModelFile {
   public:
    explicit Damaged(const SyntheticModel& base) : base_(base) {}
    [[nodiscard]] const std::string& path() const override { return base_.path(); }
    [[nodiscard]] uint64_t file_bytes() const override { return base_.file_bytes(); }
    [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return base_.metadata(); }
    [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return base_.find(key); }
    [[nodiscard]] size_t tensor_count() const override { return base_.tensor_count(); }
    [[nodiscard]] const FileTensor& tensor(size_t index) const override { return base_.tensor(index); }
    [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override {
      return base_.find_tensor(name);
    }
    void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
      base_.read_tensor(tensor, out, begin);
      const bool taps = tensor.name == "blk.2.ssm_conv1d.weight" || tensor.name == "blk.2.shortconv.conv.weight";
      if (taps) std::ranges::fill(out, std::byte{0xff});
    }

   private:
    const SyntheticModel& base_;
  };
  Engine engine(Damaged(*file_), options_of({.sequences = 2}));
  for (int i = 0; i < 3; ++i) {
    try {
      (void)generate(engine, request_of(tokens_of(i, 20, kVocabulary), 3));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is out of short_conv of layer 2"), std::string::npos) << error.what();
    }
  }
}

TEST_P(Recurrent, RecomputingEveryTokenMakesTheSameTokens) {
  const auto engine = make({});
  Request request = request_of(tokens_of(3, 30, kVocabulary), 10);
  const std::vector<std::vector<int32_t>> expected = fresh_ids(*engine, request);
  request.recompute = true;
  EXPECT_EQ(ids_of(generate(*engine, request)), expected);
}

}  // namespace
}  // namespace inferno::testing
