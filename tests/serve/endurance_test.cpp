// A server in a process of its own, and clients that do everything wrong for as long as INFERNO_FAULT_SECONDS says: its
// memory comes back, and streams beside them keep their pace.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/platform.h"
#include "serve/bad_clients.h"

namespace inferno::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

class ServerProcess {
 public:
  ServerProcess() {
    int ready[2], life[2];
    EXPECT_EQ(::pipe(ready) | ::pipe(life), 0);
    child_ = ::fork();
    if (child_ == 0) {
      platform::return_large_blocks();
      const TestServer server(
          [](serve::ServerOptions& options) {
            options.max_queue = 64;
            options.max_unsent_bytes = 16 * 1024;
          },
          8);
      const uint16_t port = server.port();
      (void)!::write(ready[1], &port, sizeof port);
      ::close(life[1]);
      char end = 0;
      (void)!::read(life[0], &end, 1);  // until the test has ended, however it did
      ::_exit(0);
    }
    ::close(ready[1]);
    EXPECT_EQ(::read(ready[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(ready[0]);
    ::close(life[0]);
    life_ = life[1];
  }
  ~ServerProcess() {
    ::kill(child_, SIGKILL);
    ::close(life_);
    int status = 0;
    ::waitpid(child_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the server ended by itself";
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  // When nothing is left to do.
  [[nodiscard]] double resting_mib() const {
    EXPECT_TRUE(metric_becomes(port_, "inferno_requests_open", 0));
    EXPECT_TRUE(metric_becomes(port_, "inferno_sequences_running", 0));
    EXPECT_TRUE(metric_becomes(port_, "inferno_pages_used", 0));
    std::ifstream file(fmt::format("/proc/{}/statm", child_));
    double total = 0;
    double resident = 0;
    file >> total >> resident;
    return resident * 4096 / (1 << 20);
  }

 private:
  pid_t child_ = -1;
  int life_ = -1;  // open as long as this process is there
  uint16_t port_ = 0;
};

struct Endured {
  int rounds = 0;
  int streams = 0;
  std::vector<float> gaps = {};
};

Endured endure(uint16_t port, seconds how_long, int least_rounds) {
  Neighbour neighbours[] = {{port, 0}, {port, 1}};
  BadClients bad(port);
  Endured result;
  const auto end = Clock::now() + how_long;
  do {
    bad.vanish(20);
    bad.stay_silent(20);
    bad.read_nothing(4);
    bad.send_without_end();
    bad.send_ends_of_two_opinions();
    bad.send_many_at_once();
    bad.send_broken_json(300);
    bad.send_odd_numbers(1);
    bad.ask_too_much();
  } while (++result.rounds < least_rounds || Clock::now() < end);
  for (Neighbour& one : neighbours) one.stop();
  for (Neighbour& one : neighbours) {
    one.join();
    EXPECT_EQ(one.broken(), 0) << "of " << one.streams() << " streams";
    result.streams += one.streams();
    std::ranges::copy(one.gaps(), std::back_inserter(result.gaps));
  }
  return result;
}

TEST(ServeEndurance, MemoryComesBackAndStreamsKeepTheirPace) {
  const char* text = std::getenv("INFERNO_FAULT_SECONDS");
  const int how_long = text == nullptr ? 0 : std::clamp(std::atoi(text), 0, 24 * 3600);
  if (how_long == 0) GTEST_SKIP() << "memory settles after minutes, which `make check-faults` has";
  const ServerProcess server;
  const double start = server.resting_mib();
  // The cache touches its pages for the first time as texts come to lie in them, and every thread's arena fills.
  endure(server.port(), seconds(how_long / 10), 10);
  const double before = server.resting_mib();
  Endured endured = endure(server.port(), seconds(how_long), 1);
  const double after = server.resting_mib();
  std::ranges::sort(endured.gaps);
  const auto quantile = [&](double share) {
    return endured.gaps[static_cast<size_t>(share * static_cast<double>(endured.gaps.size() - 1))];
  };
  fmt::print(
      "{} rounds, {} streams beside them; gaps of the streams: median {:.1f} ms, 99 % {:.1f} ms, most {:.0f} ms; the "
      "server's resident memory: {:.1f} MiB at its start, {:.1f} when warm, {:.1f} after it ({:+.1f} %)\n",
      endured.rounds, endured.streams, quantile(0.5), quantile(0.99), quantile(1), start, before, after,
      100 * (after / before - 1));
  EXPECT_LT(after / before, 1.05);
  EXPECT_LE(quantile(0.99), 150);
}

}  // namespace
}  // namespace inferno::testing
