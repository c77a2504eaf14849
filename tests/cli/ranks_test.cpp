// The program under mpirun: one model over several processes, and what happens when one of them ends.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "support/program.h"
#include "support/sanitized.h"
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

// Two ranks, of which the second is started by another command.
Outcome run_different(const std::vector<std::string>& before, const std::vector<std::string>& args,
                      const std::vector<std::string>& second) {
  std::vector<std::string> first = {"-np", "1"};
  first.insert(first.end(), before.begin(), before.end());
  std::vector<std::string> all = ranked(first, args);
  all.insert(all.end(), {":", "-np", "1"});
  all.insert(all.end(), second.begin(), second.end());
  return run(all, {}, kMpirun);
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

// Stages change no bit: a token that differs is a mistake.
TEST_F(RanksProgram, StagesGenerateWhatOneRankGenerates) {
  const std::string file = wide_model("Q4_K_M");
  std::string prompt = "1";
  for (int i = 2; i < 200; ++i) prompt += "," + std::to_string(i * 7 % 4000);
  const auto args = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"generate",  file, "--ids",        prompt,    "-n",    "12", "--json",
                                    "--threads", "1",  "--ignore-end", "--quiet", "--ctx", "512"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<int32_t> alone = ids_of(run(args({})));
  EXPECT_EQ(ids_of(run_ranks(2, args({"--pipeline", "2"}))), alone);
  EXPECT_EQ(ids_of(run_ranks(3, args({"--pipeline", "3", "--split", "1,1,2"}))), alone);
  const std::vector<int32_t> both = ids_of(run_ranks(4, args({"--pipeline", "2"})));
  EXPECT_EQ(both, ids_of(run_ranks(2, args({})))) << "two stages of two ranks have other bits than one stage";
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
  const Outcome staged = run_ranks(2, {"generate", "-n", "4", "--threads", "1", "--profile", "--pipeline", "2"});
  EXPECT_EQ(staged.code, 0) << staged.err;
  EXPECT_NE(staged.err.find("pass_on"), std::string::npos) << staged.err;
}

// Logits of a model that four ranks can share: near those of one rank, and the same bits in every run.
TEST_F(RanksProgram, LogitsOfOneTwoAndFourRanksAreNear) {
  const std::string file = wide_model("Q8_0");
  const auto logits = [&](int ranks) {
    const Outcome outcome =
        run_ranks(ranks, {"logits", file, "--ids", "1,5,9,2,7", "--all", "--threads", "1", "--ctx", "128", "--quiet"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<float> values(outcome.out.size() / sizeof(float));
    std::memcpy(values.data(), outcome.out.data(), values.size() * sizeof(float));
    return values;
  };
  const std::vector<float> one = logits(1);
  ASSERT_EQ(one.size(), 5U * 4000);
  for (const int ranks : {2, 4}) {
    const std::vector<float> split = logits(ranks);
    EXPECT_EQ(split, logits(ranks)) << "another run has other bits";
    ASSERT_EQ(split.size(), one.size());
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      difference += std::pow(double{one[i]} - split[i], 2);
      size += std::pow(double{one[i]}, 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 0.05) << ranks;
  }
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
  expect(run_ranks(3, {"generate", "-n", "1", "--pipeline", "2"}), "--pipeline 2 does not divide the 3 ranks");
  expect(run_ranks(5, {"generate", kLlamaFile, "x", "-n", "1"}), "attention heads, fewer than the 5 ranks");
  // The same name is another file on rank 1.
  const std::string q8 = wide_model("Q8_0");
  const std::string q4 = wide_model("Q4_0");
  for (const auto& [folder, file] : {std::pair{"a", q8}, {"b", q4}}) {
    std::filesystem::create_directory(path(folder));
    std::filesystem::rename(file, path(folder) + "/m.gguf");
  }
  const std::vector<std::string> args = {"generate", "m.gguf", "--ids", "1", "-n", "1"};
  expect(run_different({"-wdir", path("a")}, args, {"-wdir", path("b"), INFERNO_BINARY_DIR "/inferno"}),
         "another file");
}

// A program that differs in its version alone.
TEST_F(RanksProgram, AnotherVersionOnARankIsOneLine) {
  for (const char* file : {"inferno", "libinferno_mpi.so"}) {
    std::filesystem::copy(std::string(INFERNO_BINARY_DIR "/") + file, path(file));
  }
  std::string program(std::filesystem::file_size(path("inferno")), '\0');
  std::ifstream(path("inferno"), std::ios::binary).read(program.data(), static_cast<std::streamsize>(program.size()));
  const std::string version = INFERNO_VERSION;
  std::string other = version;
  other.front() = other.front() == '9' ? '8' : '9';
  for (size_t at = 0; (at = program.find(version + '\0', at)) != std::string::npos; ++at) {
    program.replace(at, other.size(), other);
  }
  std::ofstream(path("inferno"), std::ios::binary) << program;
  const Outcome outcome = run_different({}, {"generate", "-n", "1"}, {path("inferno")});
  EXPECT_NE(outcome.code, 0);
  ASSERT_EQ(own_lines(outcome.err).size(), 1U) << outcome.err;
  EXPECT_NE(own_lines(outcome.err)[0].find("this is inferno " + other + ", and that of rank 0 is " + version),
            std::string::npos)
      << outcome.err;
}

TEST_F(RanksProgram, ARankWithTooLittleMemoryIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more addresses than the rank is left";
  const std::string limited = "ulimit -v 1500000; exec " INFERNO_BINARY_DIR "/inferno";
  const Outcome outcome =
      run_different({}, {"generate", "-n", "1", "--threads", "1", "--kv-memory", "2GB"}, {"/bin/sh", "-c", limited});
  EXPECT_NE(outcome.code, 0);
  ASSERT_EQ(own_lines(outcome.err).size(), 1U) << outcome.err;
  EXPECT_NE(own_lines(outcome.err)[0].find("rank 1 (process "), std::string::npos) << outcome.err;
  EXPECT_NE(own_lines(outcome.err)[0].find("memory"), std::string::npos) << outcome.err;
}

// The launcher's variables without a launcher stand for a machine where the library is missing or cannot join.
TEST_F(RanksProgram, WithoutTheLibraryItSaysWhatToInstall) {
  std::filesystem::copy(INFERNO_BINARY_DIR "/inferno", path("inferno"));
  const Outcome outcome =
      run({"generate", "-n", "1"}, {.environment = {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}},
          path("inferno"));
  expect_error(outcome, 1, "install Open MPI");
}

// What the document says about a model that nobody here can run is what the commands in it print.
TEST_F(Folder, TheDocumentHasThePlansOfALargeModel) {
  std::ifstream in(INFERNO_SOURCE_DIR "/docs/scale.md");
  const std::string document((std::istreambuf_iterator<char>(in)), {});
  const std::string file = path("llama-3-70b.gguf");
  ASSERT_EQ(run({"llama-3-70b", "Q4_K_M", file, "--no-weights"}, {}, "make_bench_model").code, 0);
  constexpr std::string_view kCommand = "    $ inferno plan llama-3-70b.gguf ";
  int commands = 0;
  for (size_t at = document.find(kCommand); at != std::string::npos; at = document.find(kCommand, at + 1), ++commands) {
    const size_t end = document.find('\n', at);
    std::istringstream words(document.substr(at + kCommand.size(), end - at - kCommand.size()));
    std::vector<std::string> args = {"plan", file};
    for (std::string word; words >> word;) args.push_back(word);
    const Outcome plan = run(args);
    ASSERT_EQ(plan.code, 0) << plan.err;
    const std::string shown = document.substr(end, document.find("\n\n", end) - end);
    std::istringstream lines(plan.out.substr(plan.out.find("speed on another machine")));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("tok/s") != std::string::npos) {
        EXPECT_NE(shown.find("\n    " + line + "\n"), std::string::npos) << line;
      }
    }
  }
  EXPECT_EQ(commands, 3);
}

struct Death {
  int ranks;
  int rank;
  // That its process was there.
  std::chrono::milliseconds after;
  std::vector<std::string> args;
};

void expect_end(const Death& death) {
  SCOPED_TRACE("rank " + std::to_string(death.rank) + " of " + std::to_string(death.ranks) + " after " +
               std::to_string(death.after.count()) + " ms: " + death.args[0] + " " + death.args.back());
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
  const Outcome outcome =
      run_ranks(death.ranks, death.args,
                {.signal = SIGURG, .signal_when = kill_rank, .environment = {{"INFERNO_TEST_MARK", mark}}});
  EXPECT_LT(Clock::now() - killed, kSoon);
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_TRUE(processes_of(mark).empty()) << "a process is left";
  const std::vector<std::string> lines = own_lines(outcome.err);
  ASSERT_EQ(lines.size(), 1U) << outcome.err;
  EXPECT_NE(lines[0].find("rank " + std::to_string(death.rank) + " (process "), std::string::npos) << lines[0];
}

// While ranks compute a prompt, decode, and wait for requests, other moments in every run. INFERNO_TEST_KILLS=20: more
// of them, and sooner, while ranks load; before they have joined each other, nobody but mpirun can tell.
TEST_F(RanksProgram, ARankThatIsKilledEndsTheOthersSoonWithOneLine) {
  std::string long_prompt = "1";
  for (int i = 0; i < 900; ++i) long_prompt += ",5";
  const std::vector<std::vector<std::string>> kinds = {
      {"generate", "--ids", long_prompt, "-n", "100", "--backend", "scalar"},
      {"generate", "-n", "900", "--ignore-end", "--backend", "scalar"},
      {"generate", "-n", "900", "--ignore-end", "--backend", "scalar", "--pipeline", "2"},
      {"serve", "--port", "0", "--threads", "1"}};
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  const char* wanted = std::getenv("INFERNO_TEST_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : kSanitized ? 4 : 8;
  // By then they have joined each other, however slow the machine is just now.
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run_ranks(2, {"generate", "-n", "1", "--backend", "scalar"}).code, 0);
  const auto whole_run = std::chrono::steady_clock::now() - begin;
  const auto joined = std::max(3000, static_cast<int>(2 * (whole_run / std::chrono::milliseconds(1))));
  const int earliest = wanted != nullptr ? 400 : joined;
  for (int i = 0; i < kills; ++i) {
    expect_end({2, below(2), std::chrono::milliseconds(earliest + below(1000)), kinds[static_cast<size_t>(i % 4)]});
  }
}

// ---- a server

uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

// -1: nobody listens there yet.
int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

TEST_F(RanksProgram, RequestsOfAServerWhoseRankEndsAreAnsweredWith503) {
  for (const char* stages : {"1", "2"}) {
    const uint16_t port = free_port();
    const std::string mark = std::to_string(::getpid()) + "-" + std::to_string(port);
    std::string answer;
    const auto ask_and_kill = [&] {
      const int fd = connect_to(port);
      if (fd < 0) return false;
      const std::string body = R"({"prompt":"The sea","max_tokens":900,"ignore_eos":true})";
      const std::string head =
          "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: "
          "application/json\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n";
      EXPECT_GT(::send(fd, (head + body).data(), head.size() + body.size(), MSG_NOSIGNAL), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::kill(processes_of(mark).at(1), SIGKILL);
      answer = read_all(fd);
      ::close(fd);
      return true;
    };
    const Outcome outcome = run_ranks(
        2, {"serve", "--port", std::to_string(port), "--backend", "scalar", "--threads", "1", "--pipeline", stages},
        {.signal = SIGURG, .signal_when = ask_and_kill, .environment = {{"INFERNO_TEST_MARK", mark}}});
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
    EXPECT_NE(answer.find("rank 1 (process "), std::string::npos) << answer;
    EXPECT_NE(outcome.code, 0);
    EXPECT_TRUE(processes_of(mark).empty()) << "a process is left";
  }
}

}  // namespace
}  // namespace inferno::testing
