// Tiny models of the families on a GPU, against transformers in float64.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "family_models.h"
#include "model_runs.h"
#include "support/devices.h"

namespace inferno::testing {
namespace {

// Of the logits' standard deviation. The CPU's limit is half of it: products add in other orders for other numbers of
// tokens, and a GPU's exp has an error of some units in the last place.
constexpr double kLimit = 2e-4;

// A device and a family; without a device the test says so once.
class DeviceFamilies : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    if (device() == "none") GTEST_SKIP() << "no GPU";
    setenv("INFERNO_DEVICE_CHECK", "0", 1);  // nothing else runs in its place
  }
  static std::string device() { return std::get<0>(GetParam()); }
  static std::string family() { return std::get<1>(GetParam()); }
};

std::vector<std::string> devices_or_none() {
  std::vector<std::string> names = device_backends();
  if (names.empty()) names.emplace_back("none");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Folders, DeviceFamilies,
                         ::testing::Combine(::testing::ValuesIn(devices_or_none()),
                                            ::testing::ValuesIn(families_here())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

TEST_P(DeviceFamilies, LogitsAreTransformersInAnyChunks) {
  const std::string name = "families/" + family();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    auto engine = make_engine(folder + "/model.gguf", device(), DType::f32, true);
    const std::vector<float> whole = all_logits(*engine, kFamilyIds);
    double most = 0;
    for (const int32_t chunk : {0, 1, 7}) {  // steps of one token are recorded once, and repeated
      const std::vector<float> found = chunk == 0 ? whole : all_logits(*engine, kFamilyIds, chunk);
      ASSERT_EQ(found.size(), expected.size());
      const double difference = max_difference(found, expected) / deviation(expected);
      EXPECT_LE(difference, kLimit) << "in steps of " << chunk;
      most = std::max(most, difference);
    }
    RecordProperty("difference", fmt::format("{:.1e}", most));
    EXPECT_EQ(all_logits(*engine, kFamilyIds), whole) << "a second time";
  }
}

// How far activations of 8 bits and of 16 are apart depends on the model: a router may choose another expert. Logits
// that have nothing in common differ by 1.4 deviations; the limits of each op are `inferno verify`'s business.
TEST_P(DeviceFamilies, QuantizedModelsWithACacheOf16BitsRun) {
  const std::string name = "families/" + family();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    for (const char* type : {"Q8_0", "IQ4_NL", "MXFP4"}) {
      const std::string path = ::testing::TempDir() + "inferno_device_" + std::to_string(::getpid()) + ".gguf";
      quantize_model(open_model(folder + "/model.gguf"), path, type, {.threads = 1});
      const std::vector<float> expected = all_logits(*make_engine(path, "simd", DType::bf16, true), kFamilyIds);
      const std::vector<float> found = all_logits(*make_engine(path, device(), DType::bf16, true), kFamilyIds);
      const double difference = rms_difference(found, expected) / deviation(expected);
      RecordProperty(type, std::to_string(difference));
      EXPECT_LE(difference, 0.5) << type;
      ::unlink(path.c_str());
    }
  }
}

}  // namespace
}  // namespace inferno::testing
