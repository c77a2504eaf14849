// verify, plan and the instruments of generate as a user sees them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "profile/trace_writer.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

namespace fs = std::filesystem;

class SeeCli : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inferno_see_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static std::string text_of(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Runs the program in the scratch folder; its output goes to out_ and err_.
  int run(const std::string& args, const std::string& environment = "") {
    const std::string command = "cd " + folder_.string() + " && XDG_CACHE_HOME=" + folder_.string() + " " +
                                environment + " " INFERNO_BINARY_DIR "/inferno " + args + " >out 2>err";
    const int status = std::system(command.c_str());
    out_ = text_of(path("out"));
    err_ = text_of(path("err"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  void expect_error(const std::string& args, int code, const std::string& needle) {
    EXPECT_EQ(run(args), code) << err_;
    EXPECT_TRUE(err_.starts_with("inferno: error: ")) << err_;
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    EXPECT_NE(err_.find(needle), std::string::npos) << err_;
  }

  fs::path folder_;
  std::string out_, err_;
};

const std::string kModel = fixture("qwen3-tied.gguf");
const std::string kIds = " --ids 51,71,68,262,283 ";

TEST_F(SeeCli, VerifyPassesAndFindsWhatIsPlanted) {
  EXPECT_EQ(run("verify " + kModel + kIds + "-n 2"), 0) << out_ << err_;
  EXPECT_NE(out_.find("no op is beyond its limit"), std::string::npos) << out_;
  EXPECT_EQ(run("verify " + kModel + kIds + "-n 1 --plant gated_mlp"), 1);
  EXPECT_NE(out_.find("first divergence: gated_mlp in layer 0 (step 0, op 4)"), std::string::npos) << out_;
  EXPECT_EQ(run("verify " + kModel + kIds + "-n 1 --plant attention"), 1);
  EXPECT_NE(out_.find("first divergence: qkv_rope_store + attention + linear in layer 0 (step 0, op 1), of which "
                      "attention diverges by itself, too"),
            std::string::npos)
      << out_;
  EXPECT_EQ(run("verify " + kModel + kIds + "-n 1 --fused off --plant softmax_rows"), 1);
  EXPECT_NE(out_.find("first divergence: softmax_rows in layer 0"), std::string::npos) << out_;
}

TEST_F(SeeCli, ADumpIsReplayedAloneAndOnlyWithItsModel) {
  ASSERT_EQ(run("verify " + kModel + kIds + "-n 1 --plant attention --dump op.dump"), 1);
  EXPECT_EQ(run("verify --replay op.dump"), 0) << err_;
  EXPECT_NE(out_.find("replay: qkv_rope_store + attention + linear of layer 0 on parallel against scalar"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find(": agrees"), std::string::npos) << out_;
  EXPECT_EQ(run("verify " + kModel + " --replay op.dump"), 0) << err_;
  expect_error("verify " + fixture("llama.gguf") + " --replay op.dump", 1, "was recorded with another model");
  expect_error("verify --replay " + kModel, 1, "is no dump of inferno verify");
  expect_error("verify --replay missing.dump", 1, "missing.dump");
}

TEST_F(SeeCli, WholeModelsAreComparedByTheirLogits) {
  EXPECT_EQ(run("verify " + kModel + kIds + "-n 4 --whole 2"), 0) << out_ << err_;
  EXPECT_NE(out_.find("KL divergence: mean "), std::string::npos) << out_;
}

TEST_F(SeeCli, WrongNamesAreUsageErrorsThatHelp) {
  expect_error("verify " + kModel + kIds + "--plant atention", 2, "did you mean \"attention\"?");
  expect_error("verify " + kModel + kIds + "-n 1 --plant matmul", 2, "primitives run with --fused off");
  expect_error("verify " + kModel + kIds + "--against fast", 2, "supported: scalar");
  expect_error("generate " + kModel + kIds + "--backend parallel,liner=simd", 2, "did you mean \"linear\"?");
  expect_error("generate " + kModel + kIds + "--backend parallel,linear=sim", 2, "unknown backend \"sim\"");
  expect_error("generate " + kModel + kIds + "--backend parallel,blk.77.linear=simd", 2, "no op of this model matches");
  expect_error("plan " + kModel + " --backend parallel,blk.77.linear=simd", 2, "no op of this model matches");
  expect_error("generate " + kModel + kIds + "--trace no/such/folder/x.json", 1, "no/such/folder/x.json");
  expect_error("generate " + kModel + kIds + "--profile-json no/such/folder/x.json", 1, "no/such/folder/x.json");
}

TEST_F(SeeCli, TraceLogPrintsOpsOneLineEach) {
  ASSERT_EQ(run("generate " + kModel + kIds + "-n 1 --quiet --backend simd --fused off", "INFERNO_LOG=trace"), 0);
  const std::regex form(
      R"((-> )*\[SIMD\] \[[a-z_0-9]+\] \(([a-z_0-9]+=[a-z0-9_]+\[[0-9,]+\](, )?)*\) [0-9]+\.[0-9]+(us|ms) step [0-9]+( layer [0-9]+)?)");
  std::istringstream lines(err_);
  int count = 0;
  int nested = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(std::regex_match(line, form)) << line;
    nested += line.starts_with("-> ") ? 1 : 0;
  }
  EXPECT_GT(count, 20);
  EXPECT_GT(nested, 10);
}

TEST_F(SeeCli, ProfileAndTraceComeWithTheText) {
  ASSERT_EQ(run("generate " + kModel + kIds + "-n 4 --ignore-end --profile --profile-json p.json --trace t.json"), 0)
      << err_;
  EXPECT_TRUE(
      std::regex_search(err_, std::regex(R"(decode [0-9.]+ tok/s = [0-9]+ % of what [0-9]+ GB/s allows; lost: )")))
      << err_;
  EXPECT_EQ(check_trace(text_of(path("t.json"))), "");
  const nlohmann::json json = read_json(path("p.json"));
  EXPECT_EQ(json["prefill"]["tokens"], 5);
  EXPECT_EQ(json["decode"]["tokens"], 3);
  EXPECT_EQ(run("generate " + kModel + kIds + "-n 4 --quiet --shadow 3"), 0);
  EXPECT_NE(err_.find("all within their limits"), std::string::npos) << err_;
}

TEST_F(SeeCli, PlanShowsPlacementMemoryAndSpeed) {
  ASSERT_EQ(run("plan " + kModel + " --backend parallel,attention=scalar,blk.1.linear=simd --json"), 0) << err_;
  const nlohmann::json plan = nlohmann::json::parse(out_);
  EXPECT_EQ(plan["memory"]["weights"].size(), 2U) << "attention has no weights, so scalar holds none";
  EXPECT_GT(plan["memory"]["kv"], 0);
  for (const auto& speed : plan["speed"]) EXPECT_GT(speed["expected_tok_s"], 0);
  ASSERT_EQ(run("plan " + kModel), 0) << err_;
  EXPECT_NE(out_.find("placement:"), std::string::npos);
}

}  // namespace
}  // namespace inferno::testing
