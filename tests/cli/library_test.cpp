// The library inside another program: it prints nothing by itself, and its messages know nothing of a command line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "gguf/gguf.h"
#include "support/sanitized.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

namespace fs = std::filesystem;

// "file:line: text" of every line of the library's sources that matches. Tests, the command line and comments are no
// part of it.
std::vector<std::string> lines_matching(const std::string& pattern, const std::vector<std::string>& exempt = {}) {
  const fs::path root = fs::path(INFERNO_SOURCE_DIR) / "src";
  const std::regex wanted(pattern);
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = fs::relative(entry.path(), root).string();
    if (!std::regex_search(name, std::regex(R"(\.(cpp|h|cu|cuh|inc)$)")) || name.starts_with("cli/") ||
        name.find("_test.") != std::string::npos || std::ranges::find(exempt, name) != exempt.end()) {
      continue;
    }
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      line = line.substr(0, line.find("// "));
      if (std::regex_search(line, wanted)) found.push_back(name + ":" + std::to_string(number) + ": " + line);
    }
  }
  return found;
}

TEST(Library, NoMessageNamesAFlag) {
  EXPECT_EQ(lines_matching(R"("[^"]*--[a-z])"), std::vector<std::string>{});
}

TEST(Library, NoSourcePrints) {
  if (kSanitized) GTEST_SKIP() << "it reads sources, which are the same without a sanitizer";
  // A failed CHECK reports a bug before it aborts; a log message goes to stderr when it was asked for; standard_streams
  // writes what a program wants to say; guarded_main is the main function of test programs.
  EXPECT_EQ(lines_matching(R"(\b(stderr|stdout|std::cerr|std::cout|f?printf|fmt::print)\b|\bf?puts\()",
                           {"base/error.cpp", "base/log.cpp", "base/guarded_main.h", "base/standard_streams.cpp"}),
            std::vector<std::string>{});
}

TEST(Library, LoadingAndGeneratingPrintNothingAndReportProgress) {
  std::vector<uint64_t> done;
  uint64_t total = 0;
  EngineOptions options;
  options.on_progress = [&](uint64_t now, uint64_t all) {
    done.push_back(now);
    total = all;
  };
  const GgufFile file = GgufFile::open(kLlamaFile);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    Engine engine(file, options);
    (void)generate(engine, {.prompt = {1, 2, 3}, .max_new_tokens = 4});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_GT(done.size(), 2U);
  EXPECT_EQ(done.front(), 0U);
  EXPECT_EQ(done.back(), total);
  EXPECT_EQ(total, file.file_bytes());
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(Library, WarningsGoToTheSinkAndNameOptions) {
  std::vector<std::string> warnings;
  EngineOptions options;
  options.backend_options.threads = 100'000;
  options.backend_options.placement.numa = Numa::isolate;
  const GgufFile file = GgufFile::open(kLlamaFile);
  ::testing::internal::CaptureStderr();
  set_log_sink([&](LogLevel, std::string_view text) { warnings.emplace_back(text); });
  (void)Engine(file, options);
  set_log_sink({});
  (void)Engine(file, options);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(std::ranges::any_of(
      warnings, [](const std::string& line) { return line.find("100000 threads requested") != std::string::npos; }));
  for (const std::string& line : warnings) EXPECT_EQ(line.find("--"), std::string::npos) << line;
}

TEST(Library, ErrorsNameOptions) {
  const GgufFile file = GgufFile::open(kLlamaFile);
  const auto message = [&](const EngineOptions& options) -> std::string {
    try {
      (void)Engine(file, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      return error.what();
    }
    return "none";
  };
  EngineOptions longer;
  longer.context = 100'000'000;
  EXPECT_TRUE(message(longer).starts_with("`context` 100000000 is more than the ")) << message(longer);
  EngineOptions odd_cache;
  odd_cache.kv_dtype = DType::i32;
  EXPECT_TRUE(message(odd_cache).starts_with("`kv_type` ")) << message(odd_cache);
}

}  // namespace
}  // namespace inferno::testing
