// The measuring commands: rows that programs can rely on, and clear errors for thread counts that cannot be.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

namespace inferno::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string text;  // standard output; with errors() also standard error
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[4096];
  for (size_t n; (n = ::fread(chunk, 1, sizeof chunk, pipe)) > 0;) outcome.text.append(chunk, n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome inferno(const std::string& arguments) {
  return shell(std::string(INFERNO_BINARY_DIR "/inferno ") + arguments);
}
Outcome errors(const std::string& arguments, const std::string& environment = "") {
  return shell(environment + " " INFERNO_BINARY_DIR "/inferno " + arguments + " 2>&1");
}

const std::string kModel = INFERNO_SOURCE_DIR "/tests/fixtures/qwen3-tied.gguf";

TEST(Bench, DecodingWithGuessesIsARowBesideThatWithout) {
  const Outcome outcome = inferno("bench " + kModel + " --prompt 0 --gen 8 --repeat 1 --lookup --draft " + kModel +
                                  " --threads 1 --format json");
  ASSERT_EQ(outcome.code, 0);
  const Json rows = Json::parse(outcome.text);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0]["guesses_gain"].is_null());
  EXPECT_GT(rows[1]["guesses_gain"].get<double>(), 0);
  EXPECT_TRUE(rows[1]["guesses_right_percent"].is_number());
}

TEST(Bench, RowsHaveTheFieldsProgramsReadForEveryPhaseAndThreadCount) {
  const Outcome outcome =
      inferno("bench " + kModel + " --prompt 12 --gen 3 --batch 2 --depth 5 --threads 1,2 --repeat 2 --format json");
  ASSERT_EQ(outcome.code, 0);
  const Json rows = Json::parse(outcome.text);
  ASSERT_TRUE(rows.is_array());
  ASSERT_EQ(rows.size(), 4U);
  std::set<std::string> phases;
  for (const Json& row : rows) {
    phases.insert(row.at("phase").get<std::string>());
    EXPECT_GT(row.at("tokens_per_second").get<double>(), 0);
    EXPECT_GE(row.at("threads").get<int>(), 1);
    EXPECT_FALSE(row.at("type").get<std::string>().empty());
    EXPECT_EQ(row.at("depth"), 5);
    EXPECT_EQ(row.at("batch"), row.at("phase") == "decode" ? 2 : 1);
    EXPECT_GT(row.at("percent_of_limit").get<double>(), 0);
  }
  EXPECT_EQ(phases, (std::set<std::string>{"decode", "prefill"}));
}

TEST(Bench, SeveralBatchesGiveARowOfDecodingEach) {
  const Outcome outcome =
      inferno("bench " + kModel + " --prompt 0 --gen 2 --batch 1,3 --threads 1 --repeat 1 --format json");
  ASSERT_EQ(outcome.code, 0);
  const Json rows = Json::parse(outcome.text);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("batch"), 1);
  EXPECT_EQ(rows[1].at("batch"), 3);
}

TEST(Bench, DrawsAPlotAndWritesCommaSeparatedValues) {
  const fs::path plot = fs::temp_directory_path() / ("inferno_bench_" + std::to_string(::getpid()) + ".svg");
  const Outcome outcome =
      inferno("bench " + kModel + " --prompt 4 --gen 2 --threads 1 --repeat 1 --format csv --plot " + plot.string());
  ASSERT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text.rfind("phase,model,type", 0), 0U) << outcome.text;
  std::stringstream svg;
  svg << std::ifstream(plot).rdbuf();
  EXPECT_NE(svg.str().find("</svg>"), std::string::npos);
  fs::remove(plot);
}

TEST(Bench, RunsTheModelWithoutMeasuringForToolsThatWatchIt) {
  const Outcome outcome = inferno("bench " + kModel + " --prompt 4 --gen 2 --batch 1,2 --threads 1 --repeat 0");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text, "");
  EXPECT_EQ(errors("bench --ops --repeat 0").code, 2);
}

TEST(Bench, SaysWhatCannotBeMeasured) {
  EXPECT_EQ(errors("bench " + kModel + " --prompt 0 --gen 0").code, 2);
  EXPECT_EQ(errors("bench " + kModel + " --depth 1000000").code, 2);
  EXPECT_EQ(errors("bench /no/such.gguf").code, 1);
}

TEST(Threads, CountsThatCannotBeAreErrorsAndCountsTooLargeAreClamped) {
  for (const char* bad : {"0", "-1", "abc", "1.5"}) {
    const Outcome outcome = errors(std::string("machine --json --threads=") + bad);
    EXPECT_EQ(outcome.code, 2) << bad;
    EXPECT_NE(outcome.text.find("--threads"), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(errors("machine", "INFERNO_THREADS=none").code, 2);
  EXPECT_EQ(errors("machine --affinity 0,99999").code, 2);
  EXPECT_EQ(errors("machine --numa everywhere").code, 2);
  const Json machine = Json::parse(inferno("machine --json --threads 100000").text);
  EXPECT_LE(machine.at("threads").get<int>(), 1024);
  EXPECT_FALSE(machine.at("threads_warnings").empty());
}

TEST(Machine, NamesTheKernelOfEveryFormatAndTheLimits) {
  const Outcome outcome = inferno("machine --json --stats");
  ASSERT_EQ(outcome.code, 0);
  const Json machine = Json::parse(outcome.text);
  std::set<std::string> linear;
  for (const Json& kernel : machine.at("kernels")) {
    if (kernel.at("op") == "linear") linear.insert(kernel.at("type").get<std::string>());
  }
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"})
    EXPECT_TRUE(linear.contains(type)) << type;
  EXPECT_GT(machine.at("limits").at(0).at("multiply_gop_per_s").at("int8").get<double>(), 0);
  EXPECT_FALSE(machine.at("pool").empty());
  const Json forced = Json::parse(shell("INFERNO_ISA=scalar " INFERNO_BINARY_DIR "/inferno machine --json").text);
  EXPECT_EQ(forced.at("kernel_table"), "scalar");
}

}  // namespace
}  // namespace inferno::testing
