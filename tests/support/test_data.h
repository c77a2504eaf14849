// Where tests find files: fixtures in the repository, larger data in the folder INFERNO_TEST_DATA names.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace inferno::testing {

inline std::string fixture(const std::string& name) {
  return std::string(INFERNO_SOURCE_DIR "/tests/fixtures/") + name;
}

// Empty when INFERNO_TEST_DATA is not set.
inline std::string test_data(const std::string& name) {
  const char* folder = std::getenv("INFERNO_TEST_DATA");
  return folder == nullptr || folder[0] == '\0' ? "" : std::string(folder) + "/" + name;
}

#define INFERNO_REQUIRE_TEST_DATA()                                                    \
  if (::inferno::testing::test_data("x").empty()) {                                    \
    GTEST_SKIP() << "needs the larger test data: set INFERNO_TEST_DATA to its folder"; \
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
