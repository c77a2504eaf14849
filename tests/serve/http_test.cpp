// HTTP as strangers speak it: right, wrong, slow, too much.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

using std::chrono::milliseconds;

TEST(ServeHttp, EveryPathAnswersItsMethodAndOthersSayWhichItIs) {
  const TestServer server;
  Client client(server.port());
  EXPECT_EQ(client.get("/health").json()["status"], "ok");
  const Json models = client.get("/v1/models").json();
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "story");
  EXPECT_EQ(client.get("/v1/models/story?x=1").json()["object"], "model");
  EXPECT_EQ(client.get("/v1/models/../../etc/passwd").status, 404);
  EXPECT_EQ(client.get("/metrics").headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(client.get("/nowhere").status, 404);
  const Reply wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_TRUE(client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(client.receive(false).status, 200);
  EXPECT_EQ(client.get("/health").status, 200) << "the same connection is still good";
}

TEST(ServeHttp, ErrorsHaveAllFourFieldsOfOpenAisForm) {
  const TestServer server;
  const Json error = Client(server.port()).post("/v1/completions", R"({"prompt": 5})").json()["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_TRUE(error["code"].is_null());
  EXPECT_TRUE(error["message"].is_string());
}

TEST(ServeHttp, RequestsThatFollowEachOtherWithoutWaitingAreAnsweredInOrder) {
  const TestServer server;
  Client client(server.port());
  const std::string body = R"({"prompt":"The sea","max_tokens":3})";
  client.send(
      fmt::format("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: {}\r\n\r\n{}\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
                  body.size(), body));
  EXPECT_EQ(client.receive().json()["status"], "ok");
  EXPECT_EQ(client.receive().json()["object"], "text_completion");
  EXPECT_EQ(client.receive().json()["object"], "list");
}

TEST(ServeHttp, WhatIsNoValidRequestIsRefusedAndTheConnectionClosed) {
  const TestServer server;
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", 505},
      {"GET /health HTTP/1.1\nHost: localhost\n\n\r\n\r\n", 505},  // no version ends in a line feed alone
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400},
      {post + "Content-Length: -2\r\n\r\n", 400},
      {post + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", 400},
      {post + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {post + "Content-Length: 4, 4\r\n\r\nabcd", 400},
      {post + "Content-Length: +4\r\n\r\nabcd", 400},
      {post + "Content-Length: 0x4\r\n\r\nabcd", 400},
      {post + "Content-Length : 4\r\n\r\nabcd", 400},
      {post + "X: a\r\n b\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n", 400},
      {post + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", 415},
  };
  for (const auto& [text, status] : cases) {
    Client client(server.port());
    client.send(text);
    EXPECT_EQ(client.receive().status, status) << text;
    EXPECT_TRUE(client.at_end()) << text;
  }
  for (const std::string head :
       {"GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n"}) {
    Client client(server.port());
    client.send(head);
    EXPECT_EQ(client.receive().status, 400) << head;
  }
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
}

TEST(ServeHttp, HeadsAndBodiesThatAreTooLongAreRefusedBeforeTheyAreRead) {
  const TestServer server;
  Client line(server.port());
  line.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(64 * 1024, 'a'));
  EXPECT_EQ(line.receive().status, 431);
  Client lines(server.port());
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 1000; ++i) many += fmt::format("a{}: b\r\n", i);
  lines.send(many + "\r\n");
  EXPECT_EQ(lines.receive().status, 431);
  Client body(server.port());
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_EQ(body.receive().status, 413);
  EXPECT_TRUE(body.at_end());
}

TEST(ServeHttp, ChunkedBodiesAreReadUpToTheLimit) {
  const TestServer server([](serve::ServerOptions& options) { options.max_body_bytes = 4096; });
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  Client small(server.port());
  small.send(head + "14\r\n{\"prompt\":\"The sea\",\r\n11\r\n\"max_tokens\": 2 }\r\n0\r\n\r\n");
  EXPECT_EQ(small.receive().status, 200);
  Client large(server.port());
  large.send(head);
  for (int i = 0; i < 6; ++i) large.send("400\r\n" + std::string(1024, ' ') + "\r\n");
  EXPECT_EQ(large.receive().status, 413);
}

TEST(ServeHttp, AClientThatAsksWhetherToGoOnIsToldSo) {
  const TestServer server;
  Client client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 100);
  client.send(R"({"prompt":"a sea","max_tokens":2})");
  EXPECT_EQ(client.receive().status, 200);
}

TEST(ServeHttp, HeadsAndBodiesThatDoNotComeInTimeEndTheConnection) {
  const TestServer server([](serve::ServerOptions& options) {
    options.head_time = options.body_time = options.idle_time = milliseconds(100);
  });
  Client head(server.port());
  head.send("GET /health HT");
  Client body(server.port());
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{");
  Client silent(server.port());
  EXPECT_EQ(head.receive().status, 408);
  EXPECT_EQ(body.receive().status, 408);
  EXPECT_TRUE(silent.at_end());
  // A head that drips in has no more time than one that stands still.
  Client drip(server.port());
  const auto begin = std::chrono::steady_clock::now();
  while (drip.send("G") && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(ServeHttp, ManyHalfHeadsHinderNobody) {
  const TestServer server;
  std::vector<std::unique_ptr<Client>> half;
  for (int i = 0; i < 200; ++i) {
    half.push_back(std::make_unique<Client>(server.port()));
    half.back()->send("POST /v1/completions HTTP/1.1\r\nHost: loc");
  }
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
  half.clear();
  EXPECT_TRUE(server.metric_becomes("inferno_connections", 1));
}

TEST(ServeHttp, WithKeysOnlyHealthIsOpen) {
  const TestServer server([](serve::ServerOptions& options) { options.keys = {"first", "second"}; });
  Client client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  const Reply refused = client.get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(client.get("/metrics").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secon\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer second\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "Authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: first\r\n").status, 200);
}

TEST(ServeHttp, WithoutKeysPagesOfOtherSitesAreRefused) {
  const TestServer server;
  Client client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.receive().status, 403);
  EXPECT_EQ(client.get("/health", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(client.get("/health", "Origin: http://localhost:3000\r\n").status, 200);
}

TEST(ServeHttp, AnAddressForOthersNeedsAKeyOrTheWordOfTheUser) {
  const auto engine = story_engine();
  serve::ServerOptions options{.host = "0.0.0.0", .port = 0};
  EXPECT_THROW(serve::Server(*engine, options), Error);
  options.no_auth = true;
  EXPECT_NO_THROW(serve::Server(*engine, options));
  options.host = "nowhere.example";
  EXPECT_THROW(serve::Server(*engine, options), Error);
}

}  // namespace
}  // namespace inferno::testing
