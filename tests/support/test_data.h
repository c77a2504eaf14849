// Where tests find files: small data is in the repository (tests/fixtures, tests/data); the folder that
// INFERNO_TEST_DATA names has more of the same, and what cannot be shipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace inferno::testing {

inline std::string fixture(const std::string& name) {
  return std::string(INFERNO_SOURCE_DIR "/tests/fixtures/") + name;
}
// The model of tests that need any: two small layers, random weights.
inline const std::string kLlamaFile = fixture("llama.gguf");

// Every file or folder `name` ("quant", "models/tiny-qwen3-mini", ...): that of tests/data first, then those of
// INFERNO_TEST_DATA. A test runs on all of them.
inline std::vector<std::string> find_data(const std::string& name) {
  std::vector<std::string> roots = {INFERNO_SOURCE_DIR "/tests/data/"};
  if (const char* more = std::getenv("INFERNO_TEST_DATA"); more != nullptr && *more != '\0') {
    roots.push_back(std::string(more) + "/");
    roots.push_back(std::string(more) + "/data/");
  }
  std::vector<std::string> found;
  for (const std::string& root : roots) {
    if (std::filesystem::exists(root + name)) found.push_back(root + name);
  }
  return found;
}

// The same for what the repository has: a failure when it is missing.
inline std::vector<std::string> shipped_data(const std::string& name) {
  std::vector<std::string> found = find_data(name);
  EXPECT_TRUE(!found.empty() && found[0].starts_with(INFERNO_SOURCE_DIR)) << "tests/data/" << name << " is missing";
  return found;
}

// Skips a test that runs only on data that cannot be shipped.
#define INFERNO_REQUIRE_TEST_DATA(name)                                                                  \
  if (::inferno::testing::find_data(name).empty()) {                                                     \
    GTEST_SKIP() << "needs data that is not in the repository: set INFERNO_TEST_DATA to a folder of it"; \
  }

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

inline std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<float> values(static_cast<size_t>(in.tellg()) / sizeof(float));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

}  // namespace inferno::testing
