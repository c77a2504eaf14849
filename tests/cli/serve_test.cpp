// The command line of `inferno serve`: what is wrong with it is said before anything is served.
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

TEST(ServeUsage, ModelsHaveNamesOfTheirOwnAndFilesThatAreThere) {
  const std::string file = kLlamaFile;
  expect_error(run({"serve", "--port", "0", file, file}), 2, "two models have the name");
  expect_error(run({"serve", "--port", "0", "a=" + file, "a=" + file}), 2, "two models have the name \"a\"");
  expect_error(run({"serve", "--port", "0", "a=" + file, "b=missing.gguf"}), 1, "missing.gguf");
  expect_error(run({"serve", "--port", "0", "a=", "b=" + file}), 2, "names no file");
  expect_error(run({"serve", "--port", "0", "--alias", "x", "a=" + file, "b=" + file}), 2, "--alias");
}

TEST(ServeUsage, AModelThatNeverFitsTheMemoryIsRefused) {
  const std::string file = kLlamaFile;
  expect_error(run({"serve", "--port", "0", "--models-memory", "1KB", "a=" + file, "b=" + file}), 2, "--models-memory");
}

TEST(ServeUsage, OriginsAreOrigins) {
  expect_error(run({"serve", "--port", "0", "--quiet", "--cors-origin", "page.example"}), 2, "--cors-origin");
}

}  // namespace
}  // namespace inferno::testing
