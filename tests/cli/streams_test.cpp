// Standard streams that are closed, full or broken: the work is done all the same, and nothing lands where it should
// not.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/program.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Streams = Folder;

// Q4_K_M of this model prints several lines: rows that do not fit, and the summary.
TEST_F(Streams, AFinishedConversionIsKeptWhenNobodyReadsItsMessages) {
  ASSERT_EQ(run({"quantize", kLlamaFile, path("whole.gguf"), "Q4_K_M", "--quiet"}).code, 0);
  const std::string expected = content(path("whole.gguf"));
  const std::vector<RunOptions> ways = {{.closed = {2}}, {.full = {2}}, {.close_stderr = true}, {.closed = {0, 1, 2}}};
  for (size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(run({"quantize", kLlamaFile, path("out.gguf"), "Q4_K_M"}, ways[i]).code, 0);
    EXPECT_EQ(content(path("out.gguf")), expected);
    EXPECT_EQ(files(), 2);
  }
}

TEST_F(Streams, TextIsWholeWhenStderrIsClosedOrFull) {
  const std::string expected = run({"generate", kLlamaFile, "The sea", "-n", "5"}).out;
  for (const RunOptions& way : {RunOptions{.closed = {2}}, RunOptions{.full = {2}}, RunOptions{.close_stderr = true}}) {
    const Outcome outcome = run({"generate", kLlamaFile, "The sea", "-n", "5"}, way);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out, expected);
    RunOptions traced = way;
    traced.environment = {{"INFERNO_LOG", "trace"}};
    EXPECT_EQ(run({"generate", kLlamaFile, "The sea", "-n", "5"}, traced).out, expected);
  }
}

TEST_F(Streams, ErrorsKeepTheirExitCodeWhenStderrIsClosedOrFull) {
  for (const RunOptions& way : {RunOptions{.closed = {2}}, RunOptions{.full = {2}}, RunOptions{.close_stderr = true}}) {
    EXPECT_EQ(run({"generate", path("absent.gguf"), "x"}, way).code, 1);
    EXPECT_EQ(run({"generate", "--no-such-option"}, way).code, 2);
  }
}

// A file opened first would get number 0, 1 or 2, and whatever is printed would land in it.
TEST_F(Streams, ClosedDescriptorsAreNotReusedForFiles) {
  EXPECT_EQ(run({"generate", kLlamaFile, "The sea", "-n", "2", "--trace", path("t.json"), "--affinity", "0", "--numa",
                 "distribute"},
                {.closed = {0, 2}})
                .code,
            0);
  EXPECT_NO_THROW((void)read_json(path("t.json"))) << content(path("t.json")).substr(0, 300);
}

TEST_F(Streams, ClosedStandardOutputAndInputAreErrors) {
  expect_error(run({"generate", kLlamaFile, "The sea", "-n", "2"}, {.closed = {1}}), 1, "standard output");
  expect_error(run({"generate", kLlamaFile, "--file", "-"}, {.closed = {0}}), 1, "standard input");
}

}  // namespace
}  // namespace inferno::testing
