// One model over several ranks, which are threads here: it computes what one rank computes.
#include <gtest/gtest.h>

#include <thread>

#include "comm/rank_failure.h"
#include "comm/thread_ranks.h"
#include "engine/ranks.h"
#include "model/tensor_source.h"
#include "model_runs.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {
namespace {

// Sums in another order: of f32 weights only their rounding differs, of others also what is rounded to 8 bits.
constexpr double kFloatTolerance = 2e-4;
constexpr double kQuantizedTolerance = 0.05;

const ModelFile& wide_model(const std::string& type) {
  static std::map<std::string, std::unique_ptr<SyntheticModel>> models;
  std::unique_ptr<SyntheticModel>& model = models[type];
  if (model == nullptr) model = std::make_unique<SyntheticModel>(find_model_shape("tiny-wide"), type);
  return *model;
}

// A file that another object owns.
class Borrowed final : public ModelFile {
 public:
  explicit Borrowed(const ModelFile& file) : file_(file) {}
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] uint64_t file_bytes() const override { return file_.file_bytes(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return file_.find(key); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return file_.metadata(); }
  [[nodiscard]] size_t tensor_count() const override { return file_.tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return file_.tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override { return file_.find_tensor(name); }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
    file_.read_tensor(tensor, out, begin);
  }

 private:
  const ModelFile& file_;
};

// Ranks whose followers live as long as this.
class Group {
 public:
  explicit Group(int size, const ModelFile* file = nullptr) : ranks_(size) {
    for (int r = 1; r < size; ++r) {
      followers_.emplace_back([this, r, file] {
        const ModelOpener borrow = [file](const std::string&) { return std::make_unique<Borrowed>(*file); };
        (void)follow_leader(ranks_[r], file == nullptr ? ModelOpener(open_named_model) : borrow);
      });
    }
  }
  ~Group() {
    dismiss_followers(ranks_[0]);
    for (std::thread& thread : followers_) thread.join();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  [[nodiscard]] Communicator& leader() { return ranks_[0]; }
  void kill(int rank) { ranks_.kill(rank); }

 private:
  ThreadRanks ranks_;
  std::vector<std::thread> followers_;
};

EngineOptions options_of(Communicator* ranks, const std::string& backend = "simd", bool all = true) {
  EngineOptions options;
  options.backend = backend;
  options.kv_dtype = DType::f32;
  options.all_logits = all;
  options.ranks = ranks;
  options.limits.max_sequences = 4;
  return options;
}

std::vector<float> logits_of(const ModelFile& file, const EngineOptions& options, std::span<const int32_t> tokens) {
  Engine engine(file, options);
  return all_logits(engine, tokens, 7);
}

double scale_of(std::span<const float> values) {
  const std::vector<float> zeros(values.size());
  return rms_difference(values, zeros);
}

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
  Request request{.prompt = tokens_of(1, 5, 4000), .max_new_tokens = 50};
  request.stop_at_end = false;
  request.on_token = [&, made = 0](const TokenEvent&) mutable {
    if (++made == 3) group.kill(1);
    return true;
  };
  EXPECT_THROW((void)generate(engine, request), RankFailure);
  // And those that come after.
  request.on_token = {};
  EXPECT_THROW((void)generate(engine, request), RankFailure);
}

}  // namespace
}  // namespace inferno::testing
