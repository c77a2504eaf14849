#include "engine/suggested_sampling.h"

#include <gtest/gtest.h>

#include <limits>

#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

std::optional<SamplingSettings> suggested(const std::vector<MetadataEntry>& entries) {
  return suggested_sampling(SyntheticModel(find_model_shape("tiny"), "F32", 1, entries));
}

TEST(SuggestedSampling, WhatTheFileSaysIsRead) {
  EXPECT_FALSE(suggested({}));
  const auto settings = suggested({{"general.sampling.temp", MetadataValue(0.6F)},
                                   {"general.sampling.top_k", MetadataValue(int32_t{20})},
                                   {"general.sampling.top_p", MetadataValue(0.95F)},
                                   {"general.sampling.min_p", MetadataValue(0.1F)},
                                   {"general.sampling.penalty_repeat", MetadataValue(1.1F)},
                                   {"general.sampling.penalty_last_n", MetadataValue(int32_t{-1})}});
  ASSERT_TRUE(settings);
  EXPECT_FLOAT_EQ(settings->temperature, 0.6F);
  EXPECT_EQ(settings->top_k, 20);
  EXPECT_FLOAT_EQ(settings->top_p, 0.95F);
  EXPECT_FLOAT_EQ(settings->min_p, 0.1F);
  EXPECT_FLOAT_EQ(settings->repeat_penalty, 1.1F);
  EXPECT_EQ(settings->penalty_window, -1);
}

TEST(SuggestedSampling, NonsenseIsLeftOutAsAWhole) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(suggested({{"general.sampling.temp", MetadataValue(kNan)}}));
  EXPECT_FALSE(
      suggested({{"general.sampling.temp", MetadataValue(0.6F)}, {"general.sampling.top_p", MetadataValue(5.0F)}}));
  EXPECT_FALSE(suggested({{"general.sampling.temp", MetadataValue(std::string("hot"))}}));
  EXPECT_FALSE(suggested({{"general.sampling.top_k", MetadataValue(int64_t{1} << 40)}}));
}

}  // namespace
}  // namespace inferno
