// Tiny models of the families on a GPU, against transformers in float64.
#include <gtest/gtest.h>

#include "base/error.h"
#include "family_models.h"
#include "model_runs.h"

namespace inferno::testing {
namespace {

// Of the logits' standard deviation. The CPU's limit is half of it: cuBLAS adds in other orders for other numbers of
// tokens, and a GPU's exp has an error of some units in the last place.
constexpr double kLimit = 2e-4;

bool has_device() {
  static const bool has = [] {
    try {
      (void)create_backend("cuda");
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return has;
}

class DeviceFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(Folders, DeviceFamilies, ::testing::ValuesIn(families_here()),
                         [](const auto& info) { return info.param; });

TEST_P(DeviceFamilies, LogitsAreTransformersInAnyChunks) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    const double unit = deviation(expected);
    auto engine = make_engine(folder + "/model.gguf", "cuda", DType::f32, true);
    const std::vector<float> whole = all_logits(*engine, kFamilyIds);
    ASSERT_EQ(whole.size(), expected.size());
    EXPECT_LE(max_difference(whole, expected) / unit, kLimit);
    // Steps of one token are a graph from the second on.
    EXPECT_LE(max_difference(all_logits(*engine, kFamilyIds, 1), expected) / unit, kLimit) << "one by one";
    EXPECT_LE(max_difference(all_logits(*engine, kFamilyIds, 7), expected) / unit, kLimit) << "in sevens";
    EXPECT_EQ(all_logits(*engine, kFamilyIds), whole) << "a second time";
  }
}

// How far activations of 8 bits and of 16 are apart depends on the model: a router may choose another expert. Logits
// that have nothing in common differ by 1.4 deviations; the limits of each op are `inferno verify`'s business.
TEST_P(DeviceFamilies, QuantizedModelsWithACacheOf16BitsRun) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    for (const char* type : {"Q8_0", "IQ4_NL", "MXFP4"}) {
      const std::string path = ::testing::TempDir() + "inferno_device_" + std::to_string(::getpid()) + ".gguf";
      quantize_model(open_model(folder + "/model.gguf"), path, type, {.threads = 1});
      const std::vector<float> expected = all_logits(*make_engine(path, "simd", DType::bf16, true), kFamilyIds);
      const std::vector<float> found = all_logits(*make_engine(path, "cuda", DType::bf16, true), kFamilyIds);
      const double difference = rms_difference(found, expected) / deviation(expected);
      RecordProperty(type, std::to_string(difference));
      EXPECT_LE(difference, 0.5) << type;
      ::unlink(path.c_str());
    }
  }
}

}  // namespace
}  // namespace inferno::testing
