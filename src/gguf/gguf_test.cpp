#include "gguf/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace inferno {
namespace {

std::string test_data(const std::string& name) {
  const char* root = std::getenv("INFERNO_TEST_DATA");
  return root == nullptr ? std::string() : std::string(root) + "/data/" + name;
}

// Empty when the file opens, else the message.
std::string open_error(const std::string& path) {
  try {
    (void)GgufFile::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Gguf, EveryMalformedFileBehavesAsItsManifestSays) {
  const std::string folder = test_data("gguf-malformed");
  if (folder.empty()) GTEST_SKIP() << "INFERNO_TEST_DATA is not set";
  const auto manifest = nlohmann::json::parse(read_text(folder + "/manifest.json", 1 << 20));
  for (const auto& entry : manifest.at("cases")) {
    const auto file = entry.at("file").get<std::string>();
    const auto expect = entry.at("expect").get<std::string>();
    const std::string error = open_error(folder + "/" + file);
    if (expect == "loads") {
      EXPECT_EQ(error, "") << file;
    } else if (expect == "clear error") {
      EXPECT_NE(error, "") << file;
    }
    EXPECT_EQ(error.find('\n'), std::string::npos) << file;
  }
}

TEST(Gguf, WellFormedFilesOpenWhateverModelTheyHold) {
  const std::string folder = test_data("gguf-badmodels");
  if (folder.empty()) GTEST_SKIP() << "INFERNO_TEST_DATA is not set";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    // In these two a tensor was made smaller but its bytes were left, which the format does not allow.
    const std::string name = entry.path().stem();
    const bool has_gap = name == "tensor_q_shape" || name == "tensor_norm_shape";
    const std::string error = open_error(entry.path());
    EXPECT_EQ(error.empty(), !has_gap) << error;
    ++count;
  }
  EXPECT_GE(count, 30U);
}

TEST(Gguf, ARealVocabularyIsReadWhole) {
  const std::string path = test_data("vocab/qwen3.gguf");
  if (path.empty()) GTEST_SKIP() << "INFERNO_TEST_DATA is not set";
  const GgufFile file = GgufFile::open(path);
  const GgufStrings& tokens = file.get_strings("tokenizer.ggml.tokens");
  EXPECT_GT(tokens.size(), 150000U);
  EXPECT_EQ(tokens[0], "!");
  EXPECT_EQ(file.get_ints("tokenizer.ggml.token_type").size(), tokens.size());
}

}  // namespace
}  // namespace inferno
