// Everything clients can do wrong, while others stream beside it unharmed. INFERNO_FAULT_SCALE (1) multiplies the
// counts: `make check-faults` does the same at length.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "backend/decorator.h"
#include "base/platform.h"
#include "serve/bad_clients.h"
#include "support/sanitized.h"

namespace inferno::testing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

int scale() {
  const char* text = std::getenv("INFERNO_FAULT_SCALE");
  return text == nullptr ? 1 : std::clamp(std::atoi(text), 1, 1000);
}

// Of this process, the server's and the clients'.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

class ServeFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& one : neighbours_) one->stop();
    for (const auto& one : neighbours_) {
      while (one->streams() == 0) std::this_thread::sleep_for(milliseconds(1));
    }
    const std::vector<std::unique_ptr<Neighbour>> ended = std::exchange(neighbours_, {});
    for (const auto& one : ended) EXPECT_EQ(one->broken(), 0) << "of " << one->streams() << " streams beside it";
    EXPECT_TRUE(server_.metric_becomes("inferno_requests_open", 0));
    EXPECT_TRUE(server_.metric_becomes("inferno_sequences_running", 0));
    EXPECT_TRUE(server_.metric_becomes("inferno_pages_used", 0));
    EXPECT_EQ(Client(server_.port()).post(kText, completion(false, 3, 1)).status, 200);
  }
  [[nodiscard]] uint16_t port() const { return server_.port(); }

  TestServer server_{[](serve::ServerOptions& options) {
                       options.max_queue = 64;
                       options.max_unsent_bytes = 16 * 1024;
                       options.head_time = options.body_time = std::chrono::minutes(5);
                     },
                     8};
  std::vector<std::unique_ptr<Neighbour>> neighbours_ = [this] {
    std::vector<std::unique_ptr<Neighbour>> started;
    for (int i = 0; i < 2; ++i) started.push_back(std::make_unique<Neighbour>(port(), i));
    return started;
  }();
  BadClients bad_{port()};
};

TEST_F(ServeFaults, ClientsThatVanishAtAnyMoment) {
  bad_.vanish(20 * scale());
}

TEST_F(ServeFaults, IdleConnectionsHalfHeadsAndHalfBodies) {
  bad_.stay_silent(60 * std::min(scale(), 15));
}

TEST_F(ServeFaults, ClientsThatReadNothing) {
  for (int i = 0; i < scale(); ++i) bad_.read_nothing(5);
}

TEST_F(ServeFaults, BodiesAndHeadsWithoutEnd) {
  for (int i = 0; i < scale(); ++i) bad_.send_without_end();
}

TEST_F(ServeFaults, RequestsWhoseEndIsAMatterOfOpinionAreOneAnswerAndTheEnd) {
  bad_.send_ends_of_two_opinions();
}

TEST_F(ServeFaults, ManyRequestsAtOnceOnOneConnectionAreAnsweredInOrder) {
  for (int i = 0; i < scale(); ++i) bad_.send_many_at_once();
}

TEST_F(ServeFaults, BrokenJsonAndBrokenTextAreTheClientsFault) {
  bad_.send_broken_json((kSanitized ? 30 : 100) + 10 * scale());
}

TEST_F(ServeFaults, NumbersOfAllKindsInEveryField) {
  // Of the values a few for each field, all of them over the whole table.
  bad_.send_odd_numbers(scale() > 1 ? 100 : 2);
}

TEST_F(ServeFaults, TooMuchOfEverything) {
  bad_.ask_too_much();
}

// A backend whose next step fails when it is told to.
class FailingBackend final : public BackendDecorator {
 public:
  FailingBackend(std::unique_ptr<Backend> inner, std::atomic<bool>& fails)
      : BackendDecorator(std::move(inner)), fails_(fails) {}
  void end_step() override {
    inner().end_step();
    if (fails_.exchange(false)) throw std::runtime_error("a planted failure");
  }

 private:
  std::atomic<bool>& fails_;
};

TEST(ServeFaultyEngine, AStepThatFailsIsA500ForItsRequestsAndTheNextAreServed) {
  std::atomic<bool> fails{false};
  const TestServer server({}, 4, [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    return std::make_unique<FailingBackend>(std::move(inner), fails);
  });
  const Reply before = Client(server.port()).post(kText, completion(false, 20, 1));
  EXPECT_EQ(before.status, 200);
  for (int i = 0; i < 3 * scale(); ++i) {
    Client stream(server.port());
    stream.send_post(kText, completion(true, 900, 1));
    EXPECT_TRUE(stream.receive_until("data: "));
    fails = true;
    const Reply cut = stream.receive();
    EXPECT_NE(cut.events().back().find("a planted failure"), std::string::npos);
    fails = true;
    Client client(server.port());
    const Reply failed = client.post(kText, completion(false, 20, 1));
    EXPECT_EQ(failed.status, 500);
    EXPECT_EQ(failed.json()["error"]["type"], "server_error");
    const Reply after = client.post(kText, completion(false, 20, 1));
    EXPECT_EQ(after.status, 200);
    EXPECT_EQ(after.json()["choices"], before.json()["choices"]);
  }
  EXPECT_TRUE(server.metric_becomes("inferno_pages_used", 0));
}

TEST(ServeManyConnections, IdleOnesCostLittleAndHealthStaysQuick) {
  platform::raise_descriptor_limit();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool at_length = scale() > 1;
  const auto wanted = at_length ? size_t{10'000} : size_t{100};
  // Both ends are in this process.
  const size_t count = std::min(wanted, (static_cast<size_t>(limit.rlim_cur) - 200) / 2);
  const TestServer server([](serve::ServerOptions& options) { options.head_time = std::chrono::minutes(5); });
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
  const double before = resident_bytes();
  std::vector<std::unique_ptr<Client>> idle;
  for (size_t i = 0; i < count; ++i) idle.push_back(std::make_unique<Client>(server.port()));
  EXPECT_TRUE(server.metric_becomes("inferno_connections", static_cast<double>(count) + 1));
  const double each = (resident_bytes() - before) / static_cast<double>(count);
  Client client(server.port());
  std::vector<double> ms;
  for (int i = 0; i < 51; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(client.get("/health").status, 200);
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::sort(ms);
  if (!at_length) return;
  fmt::print("{} idle connections: {:.0f} bytes each, /health {:.2f} ms (median), {:.2f} ms (most)\n", count, each,
             ms[25], ms.back());
  EXPECT_LE(each, 5 * 1024);
  EXPECT_LT(ms[25], 10);
}

}  // namespace
}  // namespace inferno::testing
