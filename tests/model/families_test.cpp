// Tiny models of the families, made by llama.cpp's converter, against transformers in float64.
#include <gtest/gtest.h>

#include <cmath>

#include "model_runs.h"

namespace inferno::testing {
namespace {

// Folders of data/families that inferno runs.
constexpr const char* kFamilies[] = {
    "deepseek2",   "gemma2",    "gemma3",      "gemma4",   "gemma4e",       "gemma4moe", "glm4moe",
    "glm4moelite", "gptoss",    "gptoss_real", "granite",  "granitehybrid", "laguna",    "lfm2",
    "lfm2moe",     "minimaxm2", "ministral3",  "mistrald", "mixtrald",      "nemotronh", "olmo3",
    "phi3",        "qwen35",    "qwen35moe",   "qwen3moe", "qwen3next",     "seedoss",   "smollm3"};

// The ids of every logits.f32.
const std::vector<int32_t> kIds = {285, 51,  71, 68,  262, 283, 271, 64,  82, 220, 66, 64,  75,  76,  13,  1,
                                   40,  83,  6,  82,  220, 16,  23,  20,  16, 11,  1,  262, 278, 258, 220, 281,
                                   83,  279, 26, 198, 220, 258, 77,  270, 68, 220, 75, 78,  78,  74};

double deviation(std::span<const float> values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
}

// Those whose folders are here; the first alone, which says what is missing, where there is none.
std::vector<std::string> families_here() {
  std::vector<std::string> names;
  for (const char* name : kFamilies) {
    if (!find_data(std::string("families/") + name).empty()) names.emplace_back(name);
  }
  if (names.empty()) names.emplace_back(kFamilies[0]);
  return names;
}

class Families : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Folders, Families, ::testing::ValuesIn(families_here()),
                         [](const auto& info) { return info.param; });

TEST_P(Families, LogitsAreTransformersAndTheSameBitsInAnyChunks) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    for (const char* backend : {"scalar", "simd", "parallel"}) {
      auto engine = make_engine(folder + "/model.gguf", backend, DType::f32, true);
      const std::vector<float> whole = all_logits(*engine, kIds);
      ASSERT_EQ(whole.size(), expected.size());
      EXPECT_LE(max_difference(whole, expected) / deviation(expected), 1e-4) << backend;
      EXPECT_EQ(all_logits(*engine, kIds, 1), whole) << backend << ", one by one";
      EXPECT_EQ(all_logits(*engine, kIds, 7), whole) << backend << ", in sevens";
    }
  }
}

// The default bodies are the ops' definitions.
TEST_P(Families, DefaultBodiesGiveTransformersLogits) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    EngineOptions options;
    options.backend = "scalar";
    options.backend_options.fused = false;
    options.kv_dtype = DType::f32;
    options.all_logits = true;
    Engine engine(open_model(folder + "/model.gguf"), options);
    EXPECT_LE(max_difference(all_logits(engine, kIds), expected) / deviation(expected), 1e-4);
  }
}

}  // namespace
}  // namespace inferno::testing
