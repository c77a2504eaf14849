// What the server says about itself and its answers.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "serve/assets.h"
#include "serve/client.h"
#include "serve/endpoints.h"

namespace inferno::testing {
namespace {

TEST(ServeExplain, AnswersSayWhatWasReusedAndWhyNoMoreAndWhereTheTimeWent) {
  TestServer server;
  Client client(server.port());
  const Json body = {{"prompt", "The sea was calm, and the old man sat before the door of his house and looked at it"},
                     {"max_tokens", 4},
                     {"ignore_eos", true}};
  const Json first = client.post(kText, body.dump()).json()["usage"];
  EXPECT_EQ(first["reuse_end"], "unseen");
  const Reply reply = client.post(kText, body.dump());
  const Json again = reply.json()["usage"];
  EXPECT_EQ(again["reuse_end"], "complete");
  EXPECT_EQ(again["prompt_tokens_details"]["cached_tokens"].get<int>(), again["prompt_tokens"].get<int>() - 1);
  for (const char* time : {"queue_ms", "prefill_ms", "decode_ms"}) EXPECT_GE(again[time].get<double>(), 0) << time;
  EXPECT_TRUE(reply.headers.at("server-timing").starts_with("queue;dur="));
  EXPECT_TRUE(reply.headers.at("x-reused-tokens").ends_with("; complete"));
}

TEST(ServeExplain, AStreamTellsHowMuchOfItsPromptIsComputedWhereAskedFor) {
  TestServer server;
  Client client(server.port());
  for (const char* path : {"/completion", kText, kChat}) {
    Json body = {{"max_tokens", 2}, {"stream", true}, {"return_progress", true}, {"cache_prompt", false}};
    if (path == std::string(kChat)) {
      body["messages"] = {{{"role", "user"}, {"content", "The sea was calm"}}};
    } else {
      body["prompt"] = "The sea was calm";
    }
    std::vector<Json> seen;
    for (const std::string& event : client.post(path, body.dump()).events()) {
      const Json chunk = event == "[DONE]" ? Json::object() : Json::parse(event);
      if (chunk.contains("prompt_progress")) seen.push_back(chunk["prompt_progress"]);
    }
    ASSERT_GE(seen.size(), 2U) << path;
    EXPECT_EQ(seen.front()["processed"], 0);
    EXPECT_GT(seen.back()["total"], 0);
    EXPECT_EQ(seen.back()["processed"], seen.back()["total"]);
    body.erase("return_progress");
    const std::string quiet = client.post(path, body.dump()).body;
    EXPECT_EQ(quiet.find("prompt_progress"), std::string::npos);
  }
}

TEST(ServeExplain, TheLastStepsNameTheRequestsInThem) {
  TestServer server;
  Client client(server.port());
  const Reply reply = client.post(kText, R"({"prompt":"The sea","max_tokens":4,"ignore_eos":true})");
  const std::string id = reply.headers.at("x-request-id").substr(0, 16);
  const Json debug = client.get("/debug/steps").json();
  ASSERT_EQ(debug["steps"].size(), 4U) << "the prompt, and three tokens after its first";
  EXPECT_EQ(debug["steps"][0]["members"][0]["request"], id);
  EXPECT_GT(debug["steps"][0]["prompt_tokens"], 0);
  EXPECT_EQ(debug["steps"][3]["decode_tokens"], 1);
  EXPECT_GT(debug["pages"]["total"], 0);
  EXPECT_EQ(server.metric("inferno_pages_used"), 0);
  EXPECT_GT(server.metric("inferno_pages_cached"), 0);
}

TEST(ServeExplain, AMeasuredEngineHasAProfileAndAnotherSaysSo) {
  const TestServer plain;
  EXPECT_EQ(Client(plain.port()).get("/debug/profile").status, 404);
  EXPECT_EQ(plain.metric("inferno_share_of_limit{phase=\"decode\"}"), -1);
  const TestServer measured([](serve::ServerOptions& options) {
    options.profile = {.json = [] { return std::string(R"({"phases":[]})"); },
                       .prefill_share = [] { return 0.25; },
                       .decode_share = [] { return 0.5; }};
  });
  EXPECT_TRUE(Client(measured.port()).get("/debug/profile").json().contains("phases"));
  EXPECT_EQ(measured.metric("inferno_share_of_limit{phase=\"prefill\"}"), 0.25);
  EXPECT_EQ(measured.metric("inferno_share_of_limit{phase=\"decode\"}"), 0.5);
}

TEST(ServeExplain, SlotsShowWhatRuns) {
  TestServer server;
  Client running(server.port());
  running.send_post(kText, R"({"prompt":"The sea","max_tokens":900,"ignore_eos":true,"stream":true})");
  EXPECT_TRUE(running.receive_until("data: "));
  const Json slots = Client(server.port()).get("/slots").json();
  ASSERT_EQ(slots.size(), 4U);
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_GT(slots[0]["prompt_tokens"], 0);
  EXPECT_EQ(slots[1]["is_processing"], false);
  const Json props = Client(server.port()).get("/props").json();
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1024);
}

TEST(ServeExplain, ARequestMayHaveADeadline) {
  const TestServer server;
  Client client(server.port());
  const std::string body = R"({"prompt":"The sea","max_tokens":900,"ignore_eos":true,"n":16})";
  const Reply late = client.post(kText, body, "X-Request-Timeout: 0.02\r\n");
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(late.json()["error"]["code"], "request_timeout");
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
  EXPECT_TRUE(server.metric_becomes("inferno_sequences_running", 0));
  Json stream = Json::parse(body);
  stream["stream"] = true;
  const Reply cut = client.post(kText, stream.dump(), "X-Request-Timeout: 0.2\r\n");
  EXPECT_NE(cut.body.find("request_timeout"), std::string::npos);
  EXPECT_EQ(client.post(kText, R"({"prompt":"A","max_tokens":2})", "X-Request-Timeout: 600\r\n").status, 200)
      << "the same connection is still good";
  EXPECT_EQ(Client(server.port()).post(kText, "{}", "X-Request-Timeout: soon\r\n").status, 400);
}

TEST(ServeExplain, KeysHaveTheirOwnLimitAndShareNoCache) {
  const TestServer server([](serve::ServerOptions& options) {
    options.keys = {"one", "two"};
    options.max_queue_per_key = 2;
  });
  const std::string one = "Authorization: Bearer one\r\n";
  const std::string two = "Authorization: Bearer two\r\n";
  Client client(server.port());
  EXPECT_EQ(client.post(kText, R"({"prompt":"A","n":3})", one).status, 429);
  const std::string body = R"({"prompt":"The sea was calm, and the old man sat before the door","n":2,"max_tokens":2})";
  EXPECT_EQ(client.post(kText, body, one).status, 200);
  EXPECT_EQ(client.post(kText, body, two).json()["usage"]["reuse_end"], "unseen");
  EXPECT_EQ(client.post(kText, body, one).json()["usage"]["reuse_end"], "complete");
  EXPECT_EQ(client.get("/").status, 200) << "the page needs no key";
  EXPECT_EQ(client.get("/debug/steps").status, 401);
}

TEST(ServeExplain, TheLogCanBeJson) {
  std::mutex mutex;
  std::vector<std::string> lines;
  {
    const TestServer server([&](serve::ServerOptions& options) {
      options.log_json = true;
      options.log = [&](std::string_view line) {
        const std::scoped_lock lock(mutex);
        lines.emplace_back(line);
      };
    });
    Client client(server.port());
    client.post(kText, R"({"prompt":"secret words","max_tokens":3,"ignore_eos":true})");
    client.post(kText, R"({"prompt":5})");
  }
  ASSERT_EQ(lines.size(), 2U);
  const Json line = Json::parse(lines[0]);
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["generated_tokens"], 3);
  EXPECT_TRUE(line["reuse_end"].is_string());
  EXPECT_EQ(Json::parse(lines[1])["status"], 400);
  for (const std::string& text : lines) EXPECT_EQ(text.find("secret"), std::string::npos);
}

TEST(ServeExplain, TheOpenApiFileNamesEveryPathAndNoOther) {
  const Json file = Json::parse(serve::openapi_json());
  std::set<std::string> described;
  for (const auto& [path, methods] : file["paths"].items()) {
    described.insert(path);
    const serve::Endpoint* endpoint = serve::find_endpoint(path);
    ASSERT_NE(endpoint, nullptr) << path;
    EXPECT_TRUE(methods.contains(endpoint->is_post() ? "post" : "get")) << path;
  }
  for (const serve::Endpoint& endpoint : serve::endpoints())
    EXPECT_TRUE(described.contains(std::string(endpoint.path)));
  const TestServer server;
  EXPECT_EQ(Client(server.port()).get("/openapi.json").json(), file);
}

TEST(ServeExplain, ThePageNeedsNothingFromOutside) {
  const TestServer server;
  const Reply page = Client(server.port()).get("/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.headers.at("content-security-policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  EXPECT_LT(page.body.size(), 100'000U);
}

}  // namespace
}  // namespace inferno::testing
