#include "backend/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backend/sampling_batch.h"
#include "backend/sampling_row.h"
#include "base/checked.h"
#include "base/error.h"
#include "support/sanitized.h"

namespace inferno {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Result {
  int32_t id = 0;
  std::vector<TokenLogprob> logprobs;
};

// A request that owns what it points to.
struct Row {
  SampleRequest request;
  std::vector<int32_t> history = {};
  std::vector<LogitBias> bias = {};
  std::vector<uint32_t> allowed = {};
};

// Phases by `threads` threads, one after the other, in descending order of their slices.
Result sample(const std::vector<float>& logits, const Row& row, int threads = 1) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  SampleRequest request = row.request;
  request.history = row.history;
  request.bias = row.bias;
  request.allowed = row.allowed;
  HostSampleBatch batch({.max_rows = 1, .vocabulary = vocabulary, .max_history = 1 << 20});
  batch.set({&request, 1});
  std::vector<uint64_t> block(batch.block().size() / sizeof(uint64_t) + 1);
  std::memcpy(block.data(), batch.block().data(), batch.block().size());
  std::vector<uint64_t> memory(static_cast<size_t>(RowSampler::memory_bytes(vocabulary)) / sizeof(uint64_t) + 1);
  std::vector<uint64_t> candidates(static_cast<size_t>(RowSampler::candidate_bytes(vocabulary)) / sizeof(uint64_t) + 1);
  const SampleArgs args =
      batch.args({const_cast<float*>(logits.data()), Shape(1, vocabulary)}, block.data(), batch.results().data());
  const RowSampler sampler(args, 0, reinterpret_cast<std::byte*>(memory.data()),
                           reinterpret_cast<std::byte*>(candidates.data()));
  if (threads == 1) {
    sampler.run();
  } else {
    const auto share = [&](auto phase) {
      const int64_t step = ceil_div(sampler.blocks(), threads);
      for (int64_t t = threads; t-- > 0;) {  // the last may have nothing to do
        phase(std::min(t * step, sampler.blocks()), std::min((t + 1) * step, sampler.blocks()));
      }
    };
    share([&](int64_t begin, int64_t end) { sampler.scan(begin, end); });
    if (sampler.weighs()) share([&](int64_t begin, int64_t end) { sampler.weigh(begin, end); });
    sampler.finish();
  }
  const std::span<const TokenLogprob> logprobs = batch.logprobs(0);
  return {batch.sampled()[0], {logprobs.begin(), logprobs.end()}};
}

int32_t draw(const std::vector<float>& logits, const Row& row) {
  return sample(logits, row).id;
}
int32_t draw(const std::vector<float>& logits, const SamplingSettings& settings) {
  return draw(logits, Row{.request = {.settings = settings}});
}

std::vector<int> counts(const std::vector<float>& logits, const SamplingSettings& settings, int draws) {
  std::vector<int> result(logits.size());
  Row row{.request = {.settings = settings}};
  for (row.request.position = 0; row.request.position < draws; ++row.request.position) {
    ++result[static_cast<size_t>(draw(logits, row))];
  }
  return result;
}

// ---- the definition once more, slowly and in double precision

struct Candidate {
  float logit;
  int32_t id;
};

bool before(const Candidate& a, const Candidate& b) {
  return std::tie(b.logit, a.id) < std::tie(a.logit, b.id);
}

Result reference(const std::vector<float>& logits, const Row& row) {
  const SamplingSettings& s = row.request.settings;
  const auto vocabulary = static_cast<int32_t>(logits.size());
  std::map<int32_t, float> bias;
  for (const LogitBias& b : row.bias) bias[b.id] += b.bias;
  std::map<int32_t, int32_t> seen;
  const size_t window =
      s.penalty_window < 0 ? row.history.size() : std::min<size_t>(row.history.size(), s.penalty_window);
  for (size_t i = row.history.size() - window; i < row.history.size(); ++i) ++seen[row.history[i]];

  std::vector<Candidate> all;
  for (int32_t id = 0; id < vocabulary; ++id) {
    const auto at = static_cast<size_t>(id);
    if (!row.allowed.empty() && (row.allowed[at / 32] >> (at % 32) & 1) == 0) continue;
    float x = logits[at];
    if (bias.contains(id)) x += bias[id];
    if (seen.contains(id)) {
      x = x > 0 ? x / s.repeat_penalty : x * s.repeat_penalty;
      x -= static_cast<float>(seen[id]) * s.frequency_penalty + s.presence_penalty;
    }
    if (x > -kInfinity) all.push_back({x, id});
  }

  Result result;
  double best = -INFINITY;
  for (const float x : logits) best = x > best ? x : best;
  if (all.empty()) {
    const bool numbers = std::ranges::any_of(logits, [](float x) { return std::isfinite(x); });
    result.id = numbers ? kNothingAllowed : kNotFinite;
  } else {
    std::vector<Candidate> by_id = all;
    std::sort(all.begin(), all.end(), before);
    const double top = all[0].logit;
    if (s.temperature == 0) {
      result.id = all[0].id;
    } else {
      if (s.top_k > 0) all.resize(std::min(all.size(), static_cast<size_t>(s.top_k)));
      if (s.top_p < 1) {
        double total = 0;
        for (const Candidate& c : all) total += std::exp(c.logit - top);
        double sum = 0;
        size_t kept = 0;
        do sum += std::exp(all[kept++].logit - top);
        while (sum < s.top_p * total && kept < all.size());
        all.resize(kept);
      }
      if (s.top_k == 0 && s.top_p == 1) all = by_id;
      if (s.min_p > 0) std::erase_if(all, [&](const Candidate& c) { return std::exp(c.logit - top) < s.min_p; });
      double total = 0;
      for (const Candidate& c : all) total += std::exp((c.logit - top) / s.temperature);
      const double target = sample_uniform(s.seed, row.request.sample_index, row.request.position) * total;
      double sum = 0;
      result.id = all.back().id;
      for (const Candidate& c : all) {
        sum += std::exp((c.logit - top) / s.temperature);
        if (sum > target) {
          result.id = c.id;
          break;
        }
      }
    }
  }

  if (row.request.top_logprobs < 0) return result;
  double total = 0;
  std::vector<Candidate> model;
  for (int32_t id = 0; id < vocabulary; ++id) {
    const float x = logits[static_cast<size_t>(id)];
    if (!(x > -kInfinity)) continue;
    total += std::exp(x - best);
    model.push_back({x, id});
  }
  std::sort(model.begin(), model.end(), before);
  const auto logprob = [&](float x) { return static_cast<float>(x - best - std::log(total)); };
  result.logprobs.push_back({result.id, result.id < 0 ? 0 : logprob(logits[static_cast<size_t>(result.id)])});
  for (size_t i = 0; i < std::min(model.size(), static_cast<size_t>(row.request.top_logprobs)); ++i) {
    result.logprobs.push_back({model[i].id, logprob(model[i].logit)});
  }
  return result;
}

void expect_reference(const std::vector<float>& logits, const Row& row, const char* what) {
  const Result expected = reference(logits, row);
  const Result found = sample(logits, row);
  EXPECT_EQ(found.id, expected.id) << what;
  ASSERT_EQ(found.logprobs.size(), expected.logprobs.size()) << what;
  for (size_t i = 0; i < found.logprobs.size(); ++i) {
    EXPECT_EQ(found.logprobs[i].id, expected.logprobs[i].id) << what << " " << i;
    EXPECT_NEAR(found.logprobs[i].logprob, expected.logprobs[i].logprob, 1e-5) << what << " " << i;
  }
  for (const int threads : {2, 3, 16}) {
    const Result shared = sample(logits, row, threads);
    EXPECT_EQ(shared.id, found.id) << what << " " << threads;
    ASSERT_EQ(shared.logprobs.size(), found.logprobs.size());
    for (size_t i = 0; i < found.logprobs.size(); ++i) {
      EXPECT_EQ(shared.logprobs[i].id, found.logprobs[i].id) << what << " " << threads;
      EXPECT_EQ(shared.logprobs[i].logprob, found.logprobs[i].logprob) << what << " " << threads;
    }
  }
}

TEST(Sampling, EveryMixOfSettingsDrawsWhatTheDefinitionDoesForAnyThreadCount) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto one_of = [&](std::initializer_list<float> values) { return values.begin()[below(values.size())]; };
  std::normal_distribution<float> normal(0, 3);
  for (const size_t vocabulary : {1, 5, 67, 513, 5003, 40'000}) {
    std::vector<float> logits(vocabulary);
    for (int round = 0; round < (vocabulary > 5000 ? 40 : 150) / (kSanitized ? 5 : 1); ++round) {
      for (float& x : logits) x = normal(random);
      if (below(4) == 0) logits[below(vocabulary)] = kNan;
      if (below(4) == 0) logits[below(vocabulary)] = -kInfinity;
      if (below(8) == 0) std::fill(logits.begin() + static_cast<ptrdiff_t>(below(vocabulary)), logits.end(), 1.0F);
      Row row{.request = {.settings = {.temperature = one_of({0, 0.3F, 1, 5}),
                                       .top_k = static_cast<int32_t>(one_of({0, 0, 1, 40, 400, 1'000'000})),
                                       .top_p = one_of({1, 1, 0.95F, 0.5F, 0}),
                                       .min_p = one_of({0, 0, 0.02F, 1}),
                                       .repeat_penalty = one_of({1, 1, 1.3F, 0.5F}),
                                       .presence_penalty = one_of({0, 0, 1.5F, -2}),
                                       .frequency_penalty = one_of({0, 0, 0.2F, -0.1F}),
                                       .penalty_window = static_cast<int32_t>(one_of({64, 0, -1, 7})),
                                       .seed = random()},
                          .sample_index = static_cast<int32_t>(below(3)),
                          .position = static_cast<int32_t>(below(10'000)),
                          .top_logprobs = static_cast<int32_t>(one_of({-1, 0, 1, 20}))}};
      for (size_t i = below(3) * below(300); i > 0; --i) row.history.push_back(static_cast<int32_t>(below(vocabulary)));
      for (size_t i = below(3) * below(5); i > 0; --i) {
        row.bias.push_back({static_cast<int32_t>(below(vocabulary)), one_of({3, -3, 20, -kInfinity})});
      }
      if (below(2) == 0) {
        row.allowed.resize(static_cast<size_t>(bitset_words(static_cast<int64_t>(vocabulary))));
        const size_t kind = below(3);
        for (uint32_t& word : row.allowed)
          word = kind == 0 ? ~0U : kind == 1 ? static_cast<uint32_t>(random()) : below(9) == 0 ? 1U << 7 : 0;
      }
      expect_reference(logits, row,
                       ("vocabulary " + std::to_string(vocabulary) + " round " + std::to_string(round)).c_str());
      if (HasFailure()) return;
    }
  }
}

// ---- greedy

TEST(Sampling, TemperatureZeroTakesTheFirstOfEqualMaxima) {
  EXPECT_EQ(draw({1, 5, 5, 2}, SamplingSettings{}), 1);
  for (const int64_t count : {1, 31, 33, 512, 4096, 10007}) {
    for (const int64_t at : {int64_t{0}, count / 3, count - 1}) {
      std::vector<float> logits(static_cast<size_t>(count), -1.0F);
      logits[static_cast<size_t>(at)] = 2;
      logits.back() = 2;
      EXPECT_EQ(draw(logits, SamplingSettings{}), at) << count;
    }
  }
}

TEST(Sampling, TheLargestOfSlicesIsTheLargestOfAll) {
  std::vector<float> logits(10'000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1009);
  logits[5] = NAN;
  const SampleCandidate whole = first_largest(logits.data(), 0, 10'000);
  EXPECT_EQ(whole.id, draw(logits, SamplingSettings{}));
  for (const int64_t slice : {1, 16, 1000, 4096, 9'999}) {
    SampleCandidate best{-INFINITY, 0};
    for (int64_t begin = 0; begin < 10'000; begin += slice) {
      const SampleCandidate part = first_largest(logits.data(), begin, std::min<int64_t>(begin + slice, 10'000));
      if (part.logit > best.logit) best = part;
    }
    EXPECT_EQ(best.id, whole.id) << slice;
    EXPECT_EQ(best.logit, whole.logit) << slice;
  }
}

TEST(Sampling, OnlyAGreedyRowWithoutExtrasTakesTheLargest) {
  EXPECT_TRUE(takes_largest({}));
  EXPECT_FALSE(takes_largest({.settings = {.temperature = 0.1F}}));
  EXPECT_FALSE(takes_largest({.edits_count = 1}));
  EXPECT_FALSE(takes_largest({.allowed = 0}));
  EXPECT_FALSE(takes_largest({.top_logprobs = 0}));
}

// ---- penalties, bias, mask

TEST(Sampling, RepetitionPenaltyAppliesOncePerToken) {
  Row row{.request = {.settings = {.repeat_penalty = 1.5F}}, .history = {0, 0, 0}};
  // 6 / 1.5 = 4 < 5, but applied twice it would fall below 3 as well.
  EXPECT_EQ(draw({6, 5, 3}, row), 1);
  EXPECT_EQ(draw({6, 3.9F, 3}, row), 0);
  row.history = {0};
  EXPECT_EQ(draw({-1, -1.2F}, row), 1);  // a negative logit moves down too
}

TEST(Sampling, PresenceCountsATokenOnceAndFrequencyEachTime) {
  const std::vector<int32_t> history = {0, 0, 0};
  EXPECT_EQ(draw({2, 1.5F}, Row{{.settings = {.presence_penalty = 0.4F}}, history}), 0);
  EXPECT_EQ(draw({2, 1.5F}, Row{{.settings = {.presence_penalty = 0.6F}}, history}), 1);
  EXPECT_EQ(draw({2, 1.5F}, Row{{.settings = {.frequency_penalty = 0.1F}}, history}), 0);
  EXPECT_EQ(draw({2, 1.5F}, Row{{.settings = {.frequency_penalty = 0.2F}}, history}), 1);
  EXPECT_EQ(draw({2, 1.5F}, Row{{.settings = {.frequency_penalty = -0.2F}}, {1, 1, 1}}), 1);
}

TEST(Sampling, PenaltiesLookBackAsFarAsTheWindowSays) {
  std::vector<int32_t> history(5000, 1);
  history[100] = 0;
  for (const auto& [window, expected] : {std::pair{-1, 2}, {4900, 2}, {4899, 0}, {64, 0}}) {
    const Row row{{.settings = {.presence_penalty = 2, .penalty_window = window}}, history};
    EXPECT_EQ(draw({5, 5, 4}, row), expected) << window;
  }
  EXPECT_EQ(draw({5, 6, 4}, Row{{.settings = {.presence_penalty = 2, .penalty_window = 0}}, history}), 1);
}

TEST(Sampling, HistoryOutsideTheVocabularyIsIgnored) {
  const Row row{{.settings = {.repeat_penalty = 2}}, {-1, 3, INT32_MIN, INT32_MAX, 1}};
  EXPECT_EQ(draw({1, 1.5F, 0.9F}, row), 0);
}

TEST(Sampling, BiasIsAddedBeforePenaltiesAndMinusInfinityBans) {
  EXPECT_EQ(draw({1, 2, 3}, Row{.request = {}, .bias = {{0, 2.5F}}}), 0);
  EXPECT_EQ(draw({1, 2, 3}, Row{.request = {}, .bias = {{0, 1}, {0, 1.5F}}}), 0);  // the sum
  EXPECT_EQ(draw({1, 2, 3}, Row{.request = {}, .bias = {{2, -kInfinity}}}), 1);
  // (-1 + 3) / 2 = 1 > 0.9, while -1 * 2 + 3 would be as large; (-1 + 1.5) / 2 = 0.25 < 0.3 but -1 * 2 + 1.5 < 0.
  EXPECT_EQ(draw({-1, 0.2F}, Row{{.settings = {.repeat_penalty = 2}}, {0}, {{0, 1.5F}}}), 0);
  for (int32_t position = 0; position < 200; ++position) {
    const Row row{{.settings = {.temperature = 2}, .position = position}, {}, {{1, -kInfinity}}};
    EXPECT_NE(draw({1, 9, 1}, row), 1);
  }
}

TEST(Sampling, OnlyAllowedTokensAreDrawn) {
  std::vector<float> logits(1000, 5);
  for (const int32_t only : {0, 31, 32, 511, 512, 999}) {
    Row row;
    row.allowed.assign(32, 0);
    row.allowed[static_cast<size_t>(only / 32)] = 1U << (only % 32);
    logits[static_cast<size_t>(only)] = -1000;
    for (const float temperature : {0.0F, 1.0F}) {
      for (const int32_t top_k : {0, 40, 5000}) {
        for (const float top_p : {1.0F, 0.9F}) {
          row.request.settings = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = 0.1F};
          EXPECT_EQ(draw(logits, row), only);
        }
      }
    }
  }
}

TEST(Sampling, BitsBeyondTheVocabularyMeanNothing) {
  EXPECT_EQ(draw({1, 2, 3}, Row{.request = {}, .allowed = {0xfffffff8U}}), kNothingAllowed);
  EXPECT_EQ(draw({1, 2, 3}, Row{.request = {}, .allowed = {0xfffffffaU}}), 1);
}

// ---- rows in which there is nothing to draw

TEST(Sampling, ARowThatAllowsNothingSaysSoAndARowWithoutNumbersSaysSo) {
  const std::vector<float> nan(1500, kNan);
  const std::vector<float> minus(1500, -kInfinity);
  const std::vector<float> numbers(1500, 1);
  Row none;
  none.allowed.assign(static_cast<size_t>(bitset_words(1500)), 0);
  for (const float temperature : {0.0F, 1.0F}) {
    for (const int32_t top_k : {0, 3}) {
      const SamplingSettings settings{.temperature = temperature, .top_k = top_k, .top_p = 0.9F, .min_p = 0.1F};
      none.request.settings = settings;
      EXPECT_EQ(draw(nan, settings), kNotFinite);
      EXPECT_EQ(draw(nan, none), kNotFinite);
      EXPECT_EQ(draw(minus, settings), kNotFinite);
      EXPECT_EQ(draw(numbers, none), kNothingAllowed);
    }
  }
  EXPECT_EQ(draw({1, 2}, Row{.request = {}, .bias = {{0, -kInfinity}, {1, -kInfinity}}}), kNothingAllowed);
  EXPECT_EQ(draw({1, kNan}, Row{.request = {}, .allowed = {2}}), kNothingAllowed);  // the model is not to blame alone
}

TEST(Sampling, NanAndInfinityNeverBreakTheDraw) {
  EXPECT_EQ(draw({kNan, 1, kNan}, {.temperature = 1, .top_k = 2, .top_p = 0.9F}), 1);
  EXPECT_EQ(draw({kNan, 1, kNan}, SamplingSettings{}), 1);
  for (const int32_t top_k : {0, 2}) {
    EXPECT_EQ(draw({0, kInfinity, -kInfinity, kInfinity}, {.temperature = 1, .top_k = top_k}), kNotFinite);
    const float most = std::numeric_limits<float>::max();
    const Row overflowing{{.settings = {.temperature = 1, .top_k = top_k}}, {}, {{1, most}, {2, most}}};
    EXPECT_EQ(draw({0, most, most}, overflowing), 1) << "the bias is to blame, and obeyed";
    // The last candidate has a probability, whatever comes after it.
    EXPECT_EQ(draw({-kInfinity, 1, -kInfinity}, {.temperature = 1, .top_k = top_k}), 1);
  }
  EXPECT_EQ(draw({3, 1}, {.temperature = std::numeric_limits<float>::denorm_min()}), 0);
  const int32_t any = draw({3, 1}, {.temperature = std::numeric_limits<float>::max()});
  EXPECT_TRUE(any == 0 || any == 1);
}

// ---- top-k, top-p, min-p, temperature

TEST(Sampling, TopKOneIsGreedyAtAnyTemperature) {
  Row row{.request = {.settings = {.temperature = 5, .top_k = 1}}};
  for (row.request.position = 0; row.request.position < 100; ++row.request.position) {
    EXPECT_EQ(draw({1, 2, 3, 0}, row), 2);
  }
}

TEST(Sampling, FrequenciesFollowTheSoftmaxOfTheTemperature) {
  const std::vector<float> logits = {0, 1, 2};
  const std::vector<int> seen = counts(logits, {.temperature = 0.5F, .seed = 7}, 20000);
  double total = 0;
  for (const float l : logits) total += std::exp(l / 0.5);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(seen[i] / 20000.0, std::exp(logits[i] / 0.5) / total, 0.015) << i;
  }
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const std::vector<int> seen = counts(logits, {.temperature = 1, .top_p = 0.7F}, 2000);
  EXPECT_GT(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[2], 0);
}

TEST(Sampling, TopPOverManyEqualCandidatesCountsThemAll) {
  const std::vector<int> seen = counts(std::vector<float>(1000, 1), {.temperature = 1, .top_p = 0.5F, .seed = 3}, 500);
  EXPECT_EQ(std::count(seen.begin() + 501, seen.end(), 0), 499);
}

TEST(Sampling, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits = {std::log(0.6F), std::log(0.35F), std::log(0.05F)};
  const std::vector<int> seen = counts(logits, {.temperature = 1, .min_p = 0.1F}, 2000);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[2], 0);
}

TEST(Sampling, TheDrawDependsOnSeedSampleIndexAndPositionAlone) {
  EXPECT_EQ(sample_uniform(1, 2, 3), sample_uniform(1, 2, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(2, 2, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(1, 3, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(1, 2, 4));
}

// Texts with a seed stay what they were.
TEST(Sampling, DrawsOfASeedNeverChange) {
  std::vector<float> logits(2000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 2003) / 200.0F;
  const auto first = [&](SamplingSettings settings) {
    settings.seed = 1234;
    std::vector<int32_t> ids;
    for (int32_t p = 0; p < 5; ++p) {
      ids.push_back(draw(logits, Row{{.settings = settings, .sample_index = 2, .position = p}, {1507, 1507, 1003}}));
    }
    return ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(first({.temperature = 0.8F, .top_k = 40, .top_p = 0.95F}), (Ids{948, 280, 1831, 625, 797}));
  EXPECT_EQ(first({.temperature = 1, .top_p = 0.9F}), (Ids{563, 280, 950, 780, 1379}));
  EXPECT_EQ(first({.temperature = 0.7F, .min_p = 0.05F, .repeat_penalty = 1.1F}), (Ids{1662, 2, 1465, 1961, 520}));
  EXPECT_EQ(first({.temperature = 1.5F, .top_k = 3000}), (Ids{92, 560, 1555, 1822, 281}));
}

// ---- log-probabilities

TEST(Sampling, LogprobsAreTheModelsWhateverIsDone) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F), -kInfinity};
  const Row row{
      {.settings = {.temperature = 3, .top_k = 1, .repeat_penalty = 2}, .top_logprobs = 3}, {0}, {{2, 50}}, {0xeU}};
  const Result result = sample(logits, row);
  ASSERT_EQ(result.logprobs.size(), 4U);
  EXPECT_EQ(result.logprobs[0].id, 2);
  EXPECT_NEAR(result.logprobs[0].logprob, std::log(0.2), 1e-6);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(result.logprobs[static_cast<size_t>(i) + 1].id, i);
  EXPECT_NEAR(result.logprobs[1].logprob, std::log(0.5), 1e-6);
}

TEST(Sampling, LogprobsEndWhereTheModelGivesNoProbability) {
  Row row{.request = {.top_logprobs = 20}};
  EXPECT_EQ(sample({1, 2, kNan, -kInfinity}, row).logprobs.size(), 3U);
  EXPECT_EQ(sample({1, kInfinity, kNan}, row).logprobs.size(), 2U);
  EXPECT_EQ(sample({1, kInfinity, kNan}, row).logprobs[1].logprob, 0);
  ASSERT_EQ(sample({kNan, kNan}, row).logprobs.size(), 1U);
  EXPECT_EQ(sample({kNan, kNan}, row).logprobs[0].id, kNotFinite);
  row.allowed = {0};
  EXPECT_EQ(sample({1, 2}, row).logprobs[0].id, kNothingAllowed);
  EXPECT_EQ(sample({1, 2}, row).logprobs.size(), 3U);
  row.request.top_logprobs = 0;
  EXPECT_EQ(sample({1, 2}, row).logprobs.size(), 1U);
  row.request.top_logprobs = -1;
  EXPECT_TRUE(sample({1, 2}, row).logprobs.empty());
}

// ---- hostile settings

TEST(Sampling, SettingsOutOfRangeAreErrorsThatNameThem) {
  const auto expect_named = [](const char* name, const SamplingSettings& settings) {
    try {
      check_sampling(settings);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      EXPECT_TRUE(std::string(error.what()).starts_with(name)) << error.what();
    }
  };
  check_sampling({});
  check_sampling({.temperature = 100,
                  .top_k = INT32_MAX,
                  .top_p = 0,
                  .min_p = 1,
                  .repeat_penalty = 0.01F,
                  .presence_penalty = -2,
                  .frequency_penalty = 2,
                  .penalty_window = -1});
  for (const float bad : {kNan, -0.1F, kInfinity, -kInfinity}) {
    expect_named("temperature", {.temperature = bad});
    expect_named("top_p", {.top_p = bad});
    expect_named("min_p", {.min_p = bad});
    expect_named("repeat_penalty", {.repeat_penalty = bad});
  }
  for (const float bad : {kNan, 2.1F, -2.1F, kInfinity}) {
    expect_named("presence_penalty", {.presence_penalty = bad});
    expect_named("frequency_penalty", {.frequency_penalty = bad});
  }
  expect_named("repeat_penalty", {.repeat_penalty = 0});
  expect_named("top_p", {.top_p = 1.01F});
  expect_named("min_p", {.min_p = 1.01F});
  expect_named("top_k", {.top_k = -1});
  expect_named("penalty_window", {.penalty_window = -2});
}

TEST(Sampling, SettingsThatNobodyCheckedStillGiveATokenOfTheRow) {
  const std::vector<float> logits = {1, 2, 3, -kInfinity, kNan};
  for (const float bad : {kNan, -kInfinity, -1.0F, 0.0F, 5.0F, kInfinity}) {
    for (const int32_t top_k : {INT32_MIN, -1, 0, 3, INT32_MAX}) {
      for (const SamplingSettings& s : {SamplingSettings{.temperature = bad, .top_k = top_k},
                                        {.temperature = 1, .top_k = top_k, .top_p = bad},
                                        {.temperature = 1, .top_k = top_k, .min_p = bad},
                                        {.temperature = 1, .top_k = top_k, .top_p = 0.5F, .min_p = bad}}) {
        const int32_t id = draw(logits, s);
        EXPECT_TRUE(id >= 0 && id < 5) << bad << " " << top_k << " " << id;
      }
    }
  }
}

TEST(Sampling, ABiasOutOfRangeIsAnError) {
  check_logit_bias(std::vector<LogitBias>(kMaxLogitBias, {9, -kInfinity}), 10);
  EXPECT_THROW(check_logit_bias(std::vector<LogitBias>(kMaxLogitBias + 1, {9, 1}), 10), Error);
  for (const LogitBias bad : {LogitBias{10, 1}, {-1, 1}, {INT32_MIN, 1}, {0, kNan}, {0, kInfinity}}) {
    EXPECT_THROW(check_logit_bias({&bad, 1}, 10), Error);
  }
}

}  // namespace
}  // namespace inferno
