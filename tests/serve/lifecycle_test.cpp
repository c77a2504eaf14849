// Clients that go away, queues that are full, servers that end.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>

#include "serve/client.h"

namespace inferno::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kLong = 900;

std::string long_request(bool stream, int seed = 1) {
  return Json{{"prompt", "The sea"}, {"max_tokens", kLong}, {"ignore_eos", true}, {"stream", stream}, {"seed", seed}}
      .dump();
}

TEST(ServeLifecycle, AClientThatGoesAwayCancelsItsRequest) {
  for (const bool stream : {true, false}) {
    const TestServer server;
    Client client(server.port());
    client.send_post(kText, long_request(stream));
    if (stream) {
      EXPECT_TRUE(client.receive_until("data: "));
    } else {
      EXPECT_TRUE(server.metric_becomes("inferno_sequences_running", 1));
    }
    client.close();
    EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
    EXPECT_TRUE(server.metric_becomes("inferno_sequences_running", 0));
    EXPECT_EQ(server.metric("inferno_requests_cancelled_total"), 1);
    EXPECT_LT(server.metric("inferno_generated_tokens_total"), kLong);
  }
}

TEST(ServeLifecycle, AClientThatReadsNothingIsDroppedAndHindersNobody) {
  const TestServer server([](serve::ServerOptions& options) { options.max_unsent_bytes = 4096; });
  Client lazy(server.port(), 4096);
  lazy.send_post(kText, Json{{"prompt", "The sea"},
                             {"max_tokens", kLong},
                             {"ignore_eos", true},
                             {"stream", true},
                             {"logprobs", 20},
                             {"n", 16}}
                            .dump());
  EXPECT_EQ(Client(server.port()).post(kText, R"({"prompt":"A","max_tokens":4})").status, 200);
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
  EXPECT_EQ(server.metric("inferno_requests_cancelled_total"), 1);
}

TEST(ServeLifecycle, AFullQueueTurnsAwayWithATimeToComeBack) {
  const TestServer server([](serve::ServerOptions& options) { options.max_queue = 2; });
  Client running(server.port());
  running.send_post(kText, long_request(true));
  EXPECT_TRUE(running.receive_until("data: "));
  const Reply refused = Client(server.port()).post(kText, R"({"prompt":"A","n":2})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(Client(server.port()).post(kText, R"({"prompt":"A","max_tokens":2})").status, 200);
  running.close();
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
  EXPECT_EQ(Client(server.port()).post(kText, R"({"prompt":"A","n":2,"max_tokens":2})").status, 200);
}

TEST(ServeLifecycle, AServerThatEndsFinishesItsStreamsAndTakesNoNewOnes) {
  TestServer server([](serve::ServerOptions& options) { options.drain_time = std::chrono::minutes(5); });
  Client running(server.port());
  Json body = Json::parse(long_request(true));
  body["n"] = 4;  // runs long enough for what follows
  body["max_tokens"] = 300;
  running.send_post(kText, body.dump());
  EXPECT_TRUE(running.receive_until("data: "));
  Client half(server.port());
  half.send("GET /hea");
  server.stop();
  while (Client(server.port()).get("/health").status == 200) {
  }
  const Reply refused = Client(server.port()).post(kText, R"({"prompt":"A"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  const Reply reply = running.receive();
  EXPECT_EQ(reply.events().back(), "[DONE]");
  server.wait();
}

TEST(ServeLifecycle, WhatDoesNotEndInTimeEndsWithAnError) {
  TestServer server([](serve::ServerOptions& options) { options.drain_time = milliseconds(0); });
  Client stream(server.port());
  stream.send_post(kText, long_request(true, 1));
  EXPECT_TRUE(stream.receive_until("data: "));
  Client whole(server.port());
  whole.send_post(kText, long_request(false, 2));
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 2));
  server.stop();
  const Reply ended = stream.receive();
  EXPECT_TRUE(Json::parse(ended.events().back()).contains("error"));
  EXPECT_EQ(whole.receive().status, 503);
  server.wait();
}

TEST(ServeLifecycle, AnIdleStreamShowsThatItLives) {
  const TestServer server([](serve::ServerOptions& options) { options.comment_time = milliseconds(1); }, 1);
  Client running(server.port());
  running.send_post(kText, long_request(true));
  EXPECT_TRUE(running.receive_until("data: "));
  Client waiting(server.port());
  waiting.send_post(kText, long_request(true, 2));
  EXPECT_TRUE(waiting.receive_until(": working\n\n"));
}

TEST(ServeLifecycle, EveryRequestIsOneLineOfTheLogWithoutItsPrompt) {
  std::mutex mutex;
  std::vector<std::string> lines;
  {
    const TestServer server([&](serve::ServerOptions& options) {
      options.log = [&](std::string_view line) {
        const std::scoped_lock lock(mutex);
        lines.emplace_back(line);
      };
    });
    Client client(server.port());
    client.post(kText, R"({"prompt":"secret words","max_tokens":3,"ignore_eos":true})");
    client.get("/a\tb");
    client.get("/nowhere%0A");
  }
  ASSERT_GE(lines.size(), 2U);
  EXPECT_NE(lines[0].find("POST /v1/completions 200"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("new=3"), std::string::npos) << lines[0];
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find("secret"), std::string::npos);
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

TEST(ServeLifecycle, AnswersDoNotDependOnWhetherTheirLogCanBeWritten) {
  const TestServer server([](serve::ServerOptions& options) {
    options.log = [](std::string_view) { throw std::runtime_error("no space left"); };
  });
  Client client(server.port());
  EXPECT_EQ(client.post(kText, R"({"prompt":"A","max_tokens":2})").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(server.metric("inferno_log_lines_lost_total"), 2);
}

}  // namespace
}  // namespace inferno::testing
