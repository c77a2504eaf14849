// The program under mpirun: one model over several processes, and what happens when one of them ends.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "support/program.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

constexpr const char* kMpirun = "/usr/bin/mpirun";
// A bound against hanging, of which the program promises a part: others use the machine, too.
constexpr std::chrono::seconds kSoon{10};

std::vector<std::string> ranked(const std::vector<std::string>& before, const std::vector<std::string>& args) {
  std::vector<std::string> all = {"--oversubscribe", "--bind-to", "none"};
  if (::getuid() == 0) all.emplace_back("--allow-run-as-root");
  all.insert(all.end(), before.begin(), before.end());
  all.push_back(INFERNO_BINARY_DIR "/inferno");
  all.insert(all.end(), args.begin(), args.end());
  return all;
}

// Open MPI leaves memory behind when it ends, which a build with AddressSanitizer would report as ours.
void allow_leaks() {
  const char* set = std::getenv("ASAN_OPTIONS");
  ::setenv("ASAN_OPTIONS", (set == nullptr ? std::string() : std::string(set) + ":").append("detect_leaks=0").c_str(),
           1);
}

Outcome run_ranks(int ranks, const std::vector<std::string>& args, const RunOptions& options = {}) {
  return run(ranked({"-np", std::to_string(ranks)}, args), options, kMpirun);
}

std::vector<std::string> own_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("inferno: error: ")) lines.push_back(line);
  }
  return lines;
}

// Processes of the program by rank that have `mark` in their environment.
std::map<int, pid_t> processes_of(const std::string& mark) {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    constexpr std::string_view kRank = "OMPI_COMM_WORLD_RANK=";
    const size_t rank = environment.find(kRank);
    if (rank == std::string::npos || environment.find("INFERNO_TEST_MARK=" + mark) == std::string::npos) continue;
    found[std::atoi(environment.c_str() + rank + kRank.size())] = static_cast<pid_t>(std::stol(name));
  }
  return found;
}

class RanksProgram : public Folder {
 protected:
  void SetUp() override {
    Folder::SetUp();
    allow_leaks();
    if (::access(kMpirun, X_OK) != 0 || ::access(INFERNO_BINARY_DIR "/libinferno_mpi.so", R_OK) != 0) {
      GTEST_SKIP() << "needs Open MPI (Debian: libopenmpi-dev, openmpi-bin)";
    }
  }
  // A model that four ranks can share.
  [[nodiscard]] std::string wide_model(const std::string& type) {
    const std::string file = path("wide-" + type + ".gguf");
    EXPECT_EQ(run({"tiny-wide", type, file}, {}, "make_bench_model").code, 0);
    return file;
  }
};

std::vector<int32_t> ids_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out).at("generated_ids");
}

TEST_F(RanksProgram, GeneratesWhatOneRankGeneratesAndFollowersPrintNothing) {
  const std::vector<std::string> args = {"generate", "The sea was", "-n", "24", "--json", "--threads", "1", "--quiet"};
  const std::vector<int32_t> alone = ids_of(run(args));
  EXPECT_EQ(ids_of(run_ranks(1, args)), alone);
  const Outcome two = run_ranks(2, args);
  EXPECT_EQ(std::count(two.out.begin(), two.out.end(), '\n'), 1) << two.out;
  EXPECT_EQ(own_lines(two.err).size(), 0U) << two.err;
  const std::vector<int32_t> split = ids_of(two);
  EXPECT_EQ(split, ids_of(run_ranks(2, args))) << "another run has other tokens";
  // Sums in another order may turn one of two tokens that are as likely; not at the beginning of this text.
  EXPECT_TRUE(std::equal(split.begin(), split.begin() + 8, alone.begin()));
}

TEST_F(RanksProgram, FourRanksAndUnequalOnes) {
  const std::string file = wide_model("Q8_0");
  const std::vector<std::string> args = {"generate",  file, "--ids",        "1,2,3,4", "-n",    "6",  "--json",
                                         "--threads", "1",  "--ignore-end", "--quiet", "--ctx", "128"};
  const std::vector<int32_t> four = ids_of(run_ranks(4, args));
  EXPECT_EQ(four.size(), 6U);
  EXPECT_EQ(four, ids_of(run_ranks(4, args)));
  std::vector<std::string> unequal = args;
  unequal.insert(unequal.end(), {"--split", "3,1"});
  EXPECT_EQ(ids_of(run_ranks(2, unequal)).size(), 6U);
}

TEST_F(RanksProgram, VerifyAndBenchWorkOverRanks) {
  const Outcome verified = run_ranks(2, {"verify", "-n", "3", "--threads", "1"});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_EQ(verified.out.find("all_reduce"), std::string::npos) << "what ranks exchange cannot be compared";
  const Outcome whole = run_ranks(2, {"verify", "--whole", "2", "--threads", "1"});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  const Outcome profiled = run_ranks(2, {"generate", "-n", "4", "--threads", "1", "--profile"});
  EXPECT_EQ(profiled.code, 0) << profiled.err;
  EXPECT_NE(profiled.err.find("all_reduce"), std::string::npos) << profiled.err;
}

TEST_F(RanksProgram, BadInputIsOneLineOfRankZero) {
  const auto expect = [](const Outcome& outcome, const std::string& needle) {
    EXPECT_NE(outcome.code, 0);
    ASSERT_EQ(own_lines(outcome.err).size(), 1U) << outcome.err;
    EXPECT_NE(own_lines(outcome.err)[0].find(needle), std::string::npos) << outcome.err;
  };
  expect(run_ranks(2, {"generate", "missing.gguf", "x"}), "missing.gguf");
  expect(run_ranks(3, {"generate", "-n", "1"}), "blk.0.attn_output.weight");
  expect(run_ranks(2, {"generate", "-n", "1", "--split", "1,2,3"}), "--split has 3 sizes for 2 ranks");
  expect(run_ranks(2, {"serve", "--port", "0", "a=" + kLlamaFile, "b=" + kLlamaFile}), "one model is served");
  // The same name is another file on rank 1.
  const std::string q8 = wide_model("Q8_0");
  const std::string q4 = wide_model("Q4_0");
  for (const auto& [folder, file] : {std::pair{"a", q8}, {"b", q4}}) {
    std::filesystem::create_directory(path(folder));
    std::filesystem::rename(file, path(folder) + "/m.gguf");
  }
  std::vector<std::string> args =
      ranked({"-np", "1", "-wdir", path("a")}, {"generate", "m.gguf", "--ids", "1", "-n", "1", ":"});
  const std::vector<std::string> second = {"-np", "1", "-wdir", path("b"), INFERNO_BINARY_DIR "/inferno", "generate"};
  args.insert(args.end(), second.begin(), second.end());
  expect(run(args, {}, kMpirun), "another file");
}

// The launcher's variables without a launcher stand for a machine where the library is missing or cannot join.
TEST_F(RanksProgram, WithoutTheLibraryItSaysWhatToInstall) {
  std::filesystem::copy(INFERNO_BINARY_DIR "/inferno", path("inferno"));
  const Outcome outcome =
      run({"generate", "-n", "1"}, {.environment = {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}},
          path("inferno"));
  expect_error(outcome, 1, "install Open MPI");
}

struct Death {
  int rank;
  // That its process was there: before ranks know each other, all is the launcher's business.
  std::chrono::milliseconds after;
  std::vector<std::string> args;
};

void expect_end(const Death& death) {
  SCOPED_TRACE("rank " + std::to_string(death.rank) + " after " + std::to_string(death.after.count()) + " ms");
  using Clock = std::chrono::steady_clock;
  const std::string mark = std::to_string(::getpid()) + "-" + std::to_string(Clock::now().time_since_epoch().count());
  std::optional<Clock::time_point> seen;
  Clock::time_point killed;
  const auto kill_rank = [&] {
    const std::map<int, pid_t> found = processes_of(mark);
    if (!found.contains(death.rank)) return false;
    if (!seen) seen = Clock::now();
    if (Clock::now() - *seen < death.after) return false;
    ::kill(found.at(death.rank), SIGKILL);
    killed = Clock::now();
    return true;
  };
  // The signal that follows, to mpirun, is one that nobody minds.
  const Outcome outcome = run_ranks(
      2, death.args, {.signal = SIGURG, .signal_when = kill_rank, .environment = {{"INFERNO_TEST_MARK", mark}}});
  EXPECT_LT(Clock::now() - killed, kSoon);
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_TRUE(processes_of(mark).empty()) << "a process is left";
  const std::vector<std::string> lines = own_lines(outcome.err);
  ASSERT_EQ(lines.size(), 1U) << outcome.err;
  EXPECT_NE(lines[0].find("rank " + std::to_string(death.rank) + " (process "), std::string::npos) << lines[0];
}

TEST_F(RanksProgram, ARankThatIsKilledEndsTheOthersSoonWithOneLine) {
  std::string long_prompt = "1";
  for (int i = 0; i < 900; ++i) long_prompt += ",5";
  const std::vector<std::string> prefill = {"generate", "--ids", long_prompt, "-n", "100", "--backend", "scalar"};
  const std::vector<std::string> decode = {"generate", "-n", "900", "--ignore-end", "--backend", "scalar"};
  const std::vector<std::string> idle = {"serve", "--port", "0", "--threads", "1"};
  using std::chrono::milliseconds;
  for (const int rank : {0, 1}) {
    expect_end({rank, milliseconds(3000), prefill});
    expect_end({rank, milliseconds(3000), decode});
    expect_end({rank, milliseconds(3000), idle});
  }
}

}  // namespace
}  // namespace inferno::testing
