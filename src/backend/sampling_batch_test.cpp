#include "backend/sampling_batch.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <vector>

namespace inferno {
namespace {

constexpr int64_t kVocabulary = 1000;

HostSampleBatch make(int32_t rows, int32_t history = 4096) {
  return HostSampleBatch({.max_rows = rows, .vocabulary = kVocabulary, .max_history = history});
}

SampleArgs args_of(HostSampleBatch& batch) {
  static float logits[1];
  return batch.args({logits, Shape(static_cast<int64_t>(batch.sampled().size()), kVocabulary)},
                    const_cast<std::byte*>(batch.block().data()), batch.results().data());
}

// Counts and biases of a row's tokens.
std::map<int32_t, std::pair<int32_t, float>> edits_of(const SampleArgs& args, int64_t row) {
  const SampleRow& r = args.rows.as<SampleRow>()[row];
  std::map<int32_t, std::pair<int32_t, float>> edits;
  for (int32_t i = r.edits_begin; i < r.edits_begin + r.edits_count; ++i) {
    const TokenEdit& e = args.edits.as<TokenEdit>()[i];
    EXPECT_TRUE(edits.emplace(e.id, std::pair(e.count, e.bias)).second) << "twice: " << e.id;
  }
  return edits;
}

TEST(SampleBatch, AGreedyStepIsOneSmallCopyEachWay) {
  HostSampleBatch batch = make(8);
  batch.set(std::vector<SampleRequest>(3));
  EXPECT_EQ(batch.block().size(), 3 * sizeof(SampleRow));
  EXPECT_EQ(batch.results().size(), 3U);
  const SampleArgs args = args_of(batch);
  EXPECT_TRUE(args.edits.empty());
  EXPECT_TRUE(args.allowed.empty());
  EXPECT_TRUE(args.logprobs.empty());
}

TEST(SampleBatch, HistoryCostsNothingWithoutPenalties) {
  HostSampleBatch batch = make(1);
  const std::vector<int32_t> history(500, 3);
  const SampleRequest request{.settings = {.temperature = 1}, .history = history};
  batch.set({&request, 1});
  EXPECT_EQ(batch.block().size(), sizeof(SampleRow));
}

TEST(SampleBatch, EditsOfARowAreOfDifferentTokensAndCountTheWindow) {
  HostSampleBatch batch = make(3);
  const std::vector<int32_t> history = {7, 8, 7, -5, 7, 9, 1000, 8};
  const std::vector<LogitBias> bias = {{8, 1}, {2, -3}, {8, 0.5F}};
  const std::vector<SampleRequest> requests = {
      {.settings = {.repeat_penalty = 2, .penalty_window = 6}, .history = history, .bias = bias},
      {.bias = bias},
      {.settings = {.presence_penalty = 1, .penalty_window = -1}, .history = history}};
  batch.set(requests);
  const SampleArgs args = args_of(batch);
  using Edits = std::map<int32_t, std::pair<int32_t, float>>;
  EXPECT_EQ(edits_of(args, 0), (Edits{{7, {2, 0}}, {8, {1, 1.5F}}, {9, {1, 0}}, {2, {0, -3}}}));
  EXPECT_EQ(edits_of(args, 1), (Edits{{8, {0, 1.5F}}, {2, {0, -3}}}));
  EXPECT_EQ(edits_of(args, 2), (Edits{{7, {3, 0}}, {8, {2, 0}}, {9, {1, 0}}}));
}

TEST(SampleBatch, TheUploadKeepsItsSizeWhileAHistoryGrows) {
  HostSampleBatch batch = make(2);
  std::vector<int32_t> history;
  std::map<size_t, int> sizes;
  for (int32_t id = 0; id < 900; ++id) {
    history.push_back(id);
    const std::vector<SampleRequest> requests(
        2, {.settings = {.frequency_penalty = 1, .penalty_window = -1}, .history = history});
    batch.set(requests);
    ++sizes[batch.block().size()];
    ASSERT_EQ(edits_of(args_of(batch), 1).size(), history.size());
  }
  EXPECT_LE(sizes.size(), 6U);
}

TEST(SampleBatch, EveryRowMayUseAllThereIsRoomFor) {
  constexpr int32_t kHistory = 300;
  HostSampleBatch batch = make(5, kHistory);
  std::vector<int32_t> history;
  for (int32_t i = 0; i < 2 * kHistory; ++i) history.push_back(i);
  std::vector<LogitBias> bias;
  for (int32_t i = 0; i < kMaxLogitBias; ++i) bias.push_back({999 - i % 1000, 1});
  std::vector<uint32_t> allowed(static_cast<size_t>(bitset_words(kVocabulary)), 5);
  const std::vector<SampleRequest> requests(5, {.settings = {.repeat_penalty = 2, .penalty_window = -1},
                                                .history = history,
                                                .allowed = allowed,
                                                .bias = bias,
                                                .top_logprobs = kMaxTopLogprobs});
  batch.set(requests);
  EXPECT_LE(static_cast<int64_t>(batch.block().size()), batch.request_bytes());
  EXPECT_EQ(static_cast<int64_t>(batch.results().size_bytes()), batch.result_bytes());
  const SampleArgs args = args_of(batch);
  EXPECT_EQ(edits_of(args, 4).size(), 1000U);
  EXPECT_EQ(edits_of(args, 4).at(kHistory - 1).first, 0);  // the latest only
  EXPECT_EQ(edits_of(args, 4).at(kHistory).first, 1);
  for (int64_t r = 0; r < 5; ++r) {
    const auto* bits = args.allowed.as<uint32_t>() + args.rows.as<SampleRow>()[r].allowed * args.allowed.cols();
    EXPECT_TRUE(std::equal(allowed.begin(), allowed.end(), bits));
  }
}

TEST(SampleBatch, MasksBelongToTheRowsThatHaveThem) {
  HostSampleBatch batch = make(3);
  const std::vector<uint32_t> first(static_cast<size_t>(bitset_words(kVocabulary)), 1);
  const std::vector<uint32_t> second(first.size(), 2);
  const std::vector<SampleRequest> requests = {{.allowed = first}, {}, {.allowed = second}};
  batch.set(requests);
  const SampleArgs args = args_of(batch);
  const auto* rows = args.rows.as<SampleRow>();
  EXPECT_EQ(args.allowed.rows(), 2);
  EXPECT_EQ(rows[1].allowed, -1);
  EXPECT_EQ(args.allowed.as<uint32_t>()[rows[0].allowed * args.allowed.cols()], 1U);
  EXPECT_EQ(args.allowed.as<uint32_t>()[rows[2].allowed * args.allowed.cols()], 2U);
}

TEST(SampleBatch, LogprobsOfARowAreReadBackWhereItAskedForThem) {
  HostSampleBatch batch = make(2);
  const std::vector<SampleRequest> requests = {{}, {.top_logprobs = 2}};
  batch.set(requests);
  const SampleArgs args = args_of(batch);
  for (int32_t i = 0; i < 2 * kLogprobColumns; ++i) {
    args.top_ids.as<int32_t>()[i] = i < kLogprobColumns + 3 ? i : -1;
    args.logprobs.f32()[i] = static_cast<float>(-i);
  }
  EXPECT_TRUE(batch.logprobs(0).empty());
  const std::span<const TokenLogprob> found = batch.logprobs(1);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[2].id, kLogprobColumns + 2);
  EXPECT_EQ(found[2].logprob, static_cast<float>(-kLogprobColumns - 2));
}

}  // namespace
}  // namespace inferno
