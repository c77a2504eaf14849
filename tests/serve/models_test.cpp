// Several models by name: loaded when they are asked for, within a memory, unloaded when nobody needs them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "serve/client.h"

namespace inferno::testing {
namespace {

using serve::LoadedModel;
using serve::ModelSource;
using std::chrono::milliseconds;

// What a test does to the loading of a model, and sees of it.
struct Control {
  std::atomic<bool> held{false};  // loading waits
  std::atomic<bool> broken{false};
  std::atomic<int> loads{0};
};

// The built-in model under a name; each takes 100 bytes of the memory.
ModelSource story(const std::string& name, Control& control) {
  static const serve::ModelFacts facts = [] {
    const auto engine = story_engine();
    serve::ModelFacts read = serve::facts_of(*engine);
    read.memory_bytes = 100;
    return read;
  }();
  return {.name = name, .facts = facts, .load = [&control](const std::atomic<bool>& cancelled) {
            ++control.loads;
            while (control.held && !cancelled) std::this_thread::sleep_for(milliseconds(1));
            if (cancelled) throw std::runtime_error("cancelled");
            if (control.broken) throw std::runtime_error("the file is broken");
            return LoadedModel{.engine = story_engine()};
          }};
}

std::string request(const std::string& model, int tokens = 4, bool stream = false) {
  return Json{{"model", model},     {"prompt", "The sea"}, {"max_tokens", tokens},
              {"ignore_eos", true}, {"stream", stream},    {"seed", 1}}
      .dump();
}

class ServeModels : public ::testing::Test {
 protected:
  std::vector<ModelSource> three() {
    return {story("a", controls_[0]), story("b", controls_[1]), story("c", controls_[2])};
  }
  static auto with_memory(uint64_t bytes) {
    return [bytes](serve::ServerOptions& options) {
      options.models_memory = bytes;
      options.load_retry = milliseconds(0);
    };
  }
  static std::string loaded(const TestServer& server) {
    const Json answer = Client(server.port()).get("/api/ps").json();
    std::string names;
    for (const Json& model : answer["models"]) names += model["name"];
    return names;
  }
  static Reply ask(const TestServer& server, const std::string& model) {
    return Client(server.port()).post(kText, request(model));
  }

  Control controls_[3];  // before the servers of the tests: they outlive them
};

TEST_F(ServeModels, AreLoadedWhenTheyAreAskedFor) {
  const TestServer server(three());
  EXPECT_EQ(loaded(server), "");
  const Reply reply = ask(server, "b");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["model"], "b");
  EXPECT_EQ(loaded(server), "b");
  EXPECT_EQ(ask(server, "b").status, 200);
  EXPECT_EQ(controls_[1].loads, 1);
  const Json models = Client(server.port()).get("/v1/models").json()["data"];
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(models[0]["status"]["value"], "unloaded");
  EXPECT_EQ(models[1]["status"]["value"], "loaded");
  EXPECT_EQ(models[0]["max_model_len"], 1024);
  EXPECT_EQ(Client(server.port()).get("/api/tags").json()["models"].size(), 3U);
  EXPECT_EQ(Client(server.port()).get("/v1/models/c").json()["id"], "c");
  EXPECT_EQ(server.metric("inferno_model_loaded{model=\"a\"}"), 0);
  EXPECT_EQ(server.metric("inferno_model_loaded{model=\"b\"}"), 1);
  EXPECT_EQ(server.metric("inferno_model_loads_total{model=\"b\"}"), 1);
}

TEST_F(ServeModels, WithoutANameTheFirstIsMeant) {
  const TestServer server(three());
  EXPECT_EQ(Client(server.port()).post(kText, R"({"prompt":"A","max_tokens":2})").json()["model"], "a");
  EXPECT_EQ(loaded(server), "a");
}

TEST_F(ServeModels, AnUnknownNameIsNotFoundInTheFormOfEachApi) {
  const TestServer server(three());
  Client client(server.port());
  const std::string chat = R"({"model":"../x","max_tokens":2,"messages":[{"role":"user","content":"a"}]})";
  const Reply openai = client.post("/v1/chat/completions", chat);
  EXPECT_EQ(openai.status, 404);
  EXPECT_EQ(openai.json()["error"]["code"], "model_not_found");
  const Reply anthropic = client.post("/v1/messages", chat);
  EXPECT_EQ(anthropic.status, 404);
  EXPECT_EQ(anthropic.json()["error"]["type"], "not_found_error");
  const Reply ollama = client.post("/api/chat", chat);
  EXPECT_EQ(ollama.status, 404);
  EXPECT_TRUE(ollama.json()["error"].is_string());
  EXPECT_EQ(client.post("/tokenize", R"({"model":"x","content":"a"})").status, 404);
  EXPECT_EQ(client.post("/api/show", R"({"model":"x"})").status, 404);
  EXPECT_EQ(client.get("/v1/models/x").status, 404);
  EXPECT_EQ(client.get("/props?model=x").status, 404);
  EXPECT_EQ(loaded(server), "");
}

TEST_F(ServeModels, WhatNeedsNoEngineLoadsNothing) {
  const TestServer server(three());
  Client client(server.port());
  EXPECT_NE(client.post("/api/show", R"({"model":"c:latest"})").json()["template"], "");
  EXPECT_EQ(client.get("/props?model=%63").json()["model_alias"], "c");
  EXPECT_EQ(client.get("/debug/steps?model=c").json()["steps"].size(), 0U);
  EXPECT_EQ(client.get("/slots?model=c").json().size(), 4U);
  EXPECT_EQ(loaded(server), "");
  EXPECT_EQ(client.post("/tokenize", R"({"model":"c","content":"The sea"})").status, 200);
  EXPECT_EQ(loaded(server), "c");
}

TEST_F(ServeModels, TheOneUsedLeastRecentlyGivesWay) {
  const TestServer server(three(), with_memory(200));
  for (const char* name : {"a", "b", "a", "c"}) EXPECT_EQ(ask(server, name).status, 200);
  EXPECT_EQ(loaded(server), "ac");
  EXPECT_EQ(server.metric("inferno_model_unloads_total{model=\"b\"}"), 1);
  EXPECT_EQ(ask(server, "b").status, 200);
  EXPECT_EQ(loaded(server), "bc");
}

TEST_F(ServeModels, CountersDoNotFallWhenAModelIsUnloaded) {
  const TestServer server(three(), with_memory(100));
  EXPECT_EQ(ask(server, "a").status, 200);
  EXPECT_EQ(server.metric("inferno_generated_tokens_total"), 4);
  EXPECT_EQ(ask(server, "b").status, 200);
  EXPECT_EQ(loaded(server), "b");
  EXPECT_EQ(server.metric("inferno_generated_tokens_total"), 8);
}

// The stream runs on while b waits for its memory; who comes for a after b waits until b had its turn.
TEST_F(ServeModels, OneThatIsUsedStaysUntilItsRequestsEndAndNobodyWaitsForever) {
  const TestServer server(three(), with_memory(100));
  Client stream(server.port());
  stream.send_post(kText, request("a", 600, true));
  EXPECT_TRUE(stream.receive_until("data: "));
  Client other(server.port());
  other.send_post(kText, request("b"));
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 2));
  Client late(server.port());
  late.send_post(kText, request("a"));
  const Reply whole = stream.receive();
  EXPECT_EQ(whole.events().back(), "[DONE]");
  EXPECT_GT(whole.events().size(), 500U) << "every token with a text of its own";
  EXPECT_EQ(other.receive().json()["model"], "b");
  EXPECT_EQ(late.receive().json()["model"], "a");
  EXPECT_LE(controls_[0].loads, 2);
  EXPECT_EQ(controls_[1].loads, 1);
}

TEST_F(ServeModels, OneThatNobodyUsesIsUnloadedAndComesBack) {
  const TestServer server(three(), [](serve::ServerOptions& options) { options.unload_idle = milliseconds(20); });
  EXPECT_EQ(ask(server, "a").status, 200);
  EXPECT_TRUE(server.metric_becomes("inferno_model_unloads_total{model=\"a\"}", 1));
  EXPECT_EQ(server.metric("inferno_model_loaded{model=\"a\"}"), 0);
  EXPECT_EQ(ask(server, "a").status, 200);
  Client stream(server.port());
  stream.send_post(kText, request("a", 600, true));
  EXPECT_GT(stream.receive().events().size(), 500U) << "not while it is used";
}

TEST_F(ServeModels, RequestsWaitForTheirModelAndStreamsShowThatTheyLive) {
  const TestServer server(three(), [](serve::ServerOptions& options) { options.comment_time = milliseconds(1); });
  const std::string text = ask(server, "b").json()["choices"][0]["text"];
  controls_[0].held = true;
  Client stream(server.port());
  stream.send_post(kText, request("a", 4, true));
  EXPECT_TRUE(stream.receive_until(": loading the model\n\n"));
  EXPECT_TRUE(stream.receive_until(": working\n\n"));
  Client whole(server.port());
  whole.send_post(kText, request("a"));
  Client tokens(server.port());
  tokens.send_post("/tokenize", R"({"model":"a","content":"The sea"})");
  EXPECT_EQ(Client(server.port()).get("/health").status, 200);
  EXPECT_EQ(ask(server, "b").status, 200);
  EXPECT_EQ(Client(server.port()).get("/v1/models/a").json()["status"]["value"], "loading");
  controls_[0].held = false;
  EXPECT_EQ(whole.receive().json()["choices"][0]["text"], text);
  EXPECT_EQ(tokens.receive().status, 200);
  const Reply streamed = stream.receive();
  EXPECT_EQ(streamed.events().back(), "[DONE]");
  EXPECT_EQ(controls_[0].loads, 1);
}

TEST_F(ServeModels, OneThatCannotBeLoadedIsAnErrorForItsRequestsAlone) {
  const TestServer server(three(), with_memory(0));
  controls_[0].broken = true;
  Client running(server.port());
  running.send_post(kText, request("b", 600, true));
  const Reply failed = ask(server, "a");
  EXPECT_EQ(failed.status, 503);
  EXPECT_NE(failed.json()["error"]["message"].get<std::string>().find("the file is broken"), std::string::npos);
  EXPECT_EQ(Client(server.port()).post("/api/generate", R"({"model":"a","prompt":"x"})").status, 503);
  EXPECT_EQ(running.receive().events().back(), "[DONE]");
  EXPECT_EQ(server.metric("inferno_model_load_failures_total{model=\"a\"}"), 2);
  controls_[0].broken = false;
  EXPECT_EQ(ask(server, "a").status, 200);
}

TEST_F(ServeModels, AStreamThatHasBegunLearnsOfAFailureInItsLastEvent) {
  const TestServer server(three(), [](serve::ServerOptions& options) { options.comment_time = milliseconds(1); });
  controls_[0].held = controls_[0].broken = true;
  Client stream(server.port());
  stream.send_post("/v1/messages",
                   R"({"model":"a","max_tokens":2,"stream":true,"messages":[{"role":"user","content":"a"}]})");
  EXPECT_TRUE(stream.receive_until(": loading the model\n\n"));
  controls_[0].held = false;
  const Reply reply = stream.receive();
  EXPECT_NE(reply.body.find("event: error\n"), std::string::npos) << reply.body;
  // Tried again only after a while, not by every request.
  EXPECT_EQ(ask(server, "a").status, 503);
  EXPECT_EQ(controls_[0].loads, 1);
}

TEST_F(ServeModels, AClientThatGoesAwayWhileItsModelLoadsIsForgotten) {
  const TestServer server(three());
  controls_[0].held = true;
  {
    Client gone(server.port());
    gone.send_post(kText, request("a"));
    EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 1));
  }
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
  const Reply late = Client(server.port()).post(kText, request("a"), "X-Request-Timeout: 0.02\r\n");
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(server.metric("inferno_requests_open"), 0);
  controls_[0].held = false;
  EXPECT_EQ(ask(server, "a").status, 200);
}

TEST_F(ServeModels, AServerEndsWhileItLoads) {
  TestServer server(three(), [](serve::ServerOptions& options) { options.drain_time = milliseconds(0); });
  controls_[0].held = true;
  Client client(server.port());
  client.send_post(kText, request("a"));
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 1));
  server.stop();
  EXPECT_EQ(client.receive().status, 503);
  server.wait();
}

TEST_F(ServeModels, OnesThatCannotBeServedAreRefusedAtTheStart) {
  serve::ServerOptions options{.port = 0};
  EXPECT_THROW(serve::Server(std::vector<ModelSource>{}, options), Error);
  EXPECT_THROW(serve::Server({story("a", controls_[0]), story("a", controls_[1])}, options), Error);
  options.models_memory = 99;
  EXPECT_THROW(serve::Server({story("a", controls_[0])}, options), Error);
}

// Many clients of three models in a memory for two: everybody gets the answer of the model it named.
TEST_F(ServeModels, ManyClientsOfModelsThatComeAndGoAllGetTheirAnswers) {
  const TestServer server(three(), with_memory(200));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send_post(kText, request(std::string(1, static_cast<char>('a' + i % 3)), 8));
  }
  std::string text;
  for (int i = 0; i < 24; ++i) {
    const Reply reply = clients[static_cast<size_t>(i)]->receive();
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json()["model"], std::string(1, static_cast<char>('a' + i % 3)));
    const std::string made = reply.json()["choices"][0]["text"];
    if (i == 0) text = made;
    EXPECT_EQ(made, text);
  }
  EXPECT_EQ(server.metric("inferno_requests_open"), 0);
}

}  // namespace
}  // namespace inferno::testing
