// What clients of other servers send and read: names of models, conversations that end with the assistant's words,
// prompts of several kinds, chosen fields, names of metrics.
#include <gtest/gtest.h>

#include "inferno/error.h"
#include "serve/client.h"
#include "serve/models.h"

namespace inferno::testing {
namespace {

const Json kQuestion = {{"role", "user"}, {"content", "Tell me of the sea."}};
const Json kBeginning = {{"role", "assistant"}, {"content", "The sea was"}};

TEST(ServeCompat, AnyNameIsTheModelsWhereThatIsAskedForAndElseA404) {
  const std::string body = Json{{"model", "gpt-4.1"}, {"prompt", "The sea"}, {"max_tokens", 2}}.dump();
  {
    TestServer server;
    EXPECT_EQ(Client(server.port()).post(kText, body).status, 404);
  }
  TestServer server([](serve::ServerOptions& options) { options.any_model = true; });
  const Reply reply = Client(server.port()).post(kText, body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["model"], "story");  // its own name
}

TEST(ServeCompat, AnyNameCannotBeThatOfSeveralModels) {
  std::vector<serve::ModelSource> two(2);
  two[0].name = "a";
  two[1].name = "b";
  EXPECT_THROW(serve::Models(std::move(two), {.any_name = true}, {}, {}), Error);
}

TEST(ServeCompat, TheServersSeedIsThatOfRequestsWithoutOne) {
  TestServer server([](serve::ServerOptions& options) { options.seed = 42; });
  Client client(server.port());
  Json body = {{"prompt", "The sea"}, {"n_predict", 12}, {"temperature", 1.5}};
  const Json one = client.post("/completion", body.dump()).json();
  EXPECT_EQ(one["generation_settings"]["seed"], 42);
  EXPECT_EQ(client.post("/completion", body.dump()).json()["content"], one["content"]);
  EXPECT_EQ(client.get("/props").json()["default_generation_settings"]["params"]["seed"], 42);
  body["seed"] = 43;
  EXPECT_EQ(client.post("/completion", body.dump()).json()["generation_settings"]["seed"], 43);
}

TEST(ServeCompat, AnAnswerGoesOnWithTheAssistantsLastMessage) {
  TestServer server;
  Client client(server.port());
  const auto prompt = [&](const Json& body) { return client.post("/apply-template", body.dump()).json(); };
  const std::string before = prompt({{"messages", {kQuestion}}})["prompt"];
  const Json both = {kQuestion, kBeginning};
  EXPECT_EQ(prompt({{"messages", both}})["prompt"], before + "The sea was");
  EXPECT_EQ(prompt({{"messages", both}, {"continue_final_message", true}, {"add_generation_prompt", false}})["prompt"],
            before + "The sea was");
  // Not where a new answer is asked for, or none at all.
  EXPECT_NE(prompt({{"messages", both}, {"continue_final_message", false}})["prompt"], before + "The sea was");
  EXPECT_NE(prompt({{"messages", both}, {"add_generation_prompt", false}})["prompt"], before + "The sea was");

  // In every API the same tokens follow.
  const Json whole =
      client.post(kChat, Json{{"messages", both}, {"max_tokens", 8}, {"temperature", 0}, {"verbose", true}}.dump())
          .json();
  EXPECT_TRUE(whole["__verbose"]["prompt"].get<std::string>().ends_with("The sea was")) << whole;
  const std::string text = whole["choices"][0]["message"]["content"];
  const Json anthropic =
      client.post("/v1/messages", Json{{"messages", both}, {"max_tokens", 8}, {"temperature", 0}}.dump()).json();
  EXPECT_EQ(anthropic["content"][0]["text"], text);
  const Json ollama =
      client
          .post(
              "/api/chat",
              Json{{"messages", both}, {"stream", false}, {"options", {{"num_predict", 8}, {"temperature", 0}}}}.dump())
          .json();
  EXPECT_EQ(ollama["message"]["content"], text);
}

TEST(ServeCompat, WhatCannotBeContinuedIsA400) {
  TestServer server;
  Client client(server.port());
  for (const Json& body : {
           Json{{"messages", {kQuestion, kBeginning, kBeginning}}},
           Json{{"messages", {kQuestion, kBeginning}},
                {"continue_final_message", true},
                {"add_generation_prompt", true}},
           Json{{"messages", {kQuestion}}, {"continue_final_message", true}},
       }) {
    EXPECT_EQ(client.post(kChat, body.dump()).status, 400) << body;
    EXPECT_EQ(client.post("/apply-template", body.dump()).status, 400) << body;
  }
}

TEST(ServeCompat, TokensOfAConversationAreCountedAsTheyAreComputed) {
  TestServer server;
  Client client(server.port());
  const Json body = {{"messages", {kQuestion, kBeginning}}, {"max_tokens", 1}};
  const Json counted = client.post("/v1/chat/completions/input_tokens", body.dump()).json();
  EXPECT_EQ(counted["input_tokens"], client.post(kChat, body.dump()).json()["usage"]["prompt_tokens"]);
  const Json input = {{"input", "Tell me of the sea."}, {"max_output_tokens", 1}};
  EXPECT_EQ(client.post("/v1/responses/input_tokens", input.dump()).json()["input_tokens"],
            client.post("/v1/responses", input.dump()).json()["usage"]["input_tokens"]);
}

TEST(ServeCompat, PromptsOfTextsAndTokensAreOnePrompt) {
  TestServer server;
  Client client(server.port());
  const auto complete = [&](const Json& prompt) {
    return client.post("/completion", Json{{"prompt", prompt}, {"n_predict", 6}, {"temperature", 0}}.dump());
  };
  const Json ids =
      client.post("/tokenize", Json{{"content", " was blue"}, {"add_special", false}}.dump()).json()["tokens"];
  const Json text = complete("The sea was blue").json();
  Json mixed = Json::array({"The sea"});
  for (const Json& id : ids) mixed.push_back(id);
  EXPECT_EQ(complete(mixed).json()["content"], text["content"]);
  EXPECT_EQ(complete({{"prompt_string", "The sea was blue"}}).json()["content"], text["content"]);
  const Json several = complete({"The sea was blue", {{"prompt_string", "The sea was blue"}}, mixed}).json();
  ASSERT_EQ(several.size(), 3U);
  for (const Json& one : several) EXPECT_EQ(one["content"], text["content"]);
  EXPECT_EQ(complete({{"prompt_string", "a"}, {"multimodal_data", "AAAA"}}).status, 400);
  EXPECT_EQ(complete({"The sea", 1.5}).status, 400);
  EXPECT_EQ(complete({"The sea", 100'000'000}).status, 400);
}

TEST(ServeCompat, OnlyTheFieldsThatWereAskedForAreInTheAnswer) {
  TestServer server;
  const Json body = {
      {"prompt", "The sea"},
      {"n_predict", 3},
      {"response_fields", {"content", "generation_settings/n_predict", "prompt", "nothing", "content/x"}}};
  const Json answer = Client(server.port()).post("/completion", body.dump()).json();
  EXPECT_EQ(answer.size(), 3U) << answer;
  EXPECT_EQ(answer["generation_settings/n_predict"], 3);
  EXPECT_NE(answer["prompt"].get<std::string>().find("The sea"), std::string::npos);
}

TEST(ServeCompat, ABiasMayNameATextAndEndTokensThatAreIgnoredAreTold) {
  TestServer server;
  Client client(server.port());
  const Json free =
      client.post("/completion", Json{{"prompt", "The"}, {"n_predict", 1}, {"temperature", 0}}.dump()).json();
  const std::string first = free["content"];
  ASSERT_FALSE(first.empty());
  for (const Json& bias : {Json::array({Json::array({first, -100})}), Json::object({{first, -100}})}) {
    const Json body = {{"prompt", "The"}, {"n_predict", 1}, {"temperature", 0}, {"logit_bias", bias}};
    EXPECT_NE(client.post("/completion", body.dump()).json()["content"], first);
    // OpenAI's form has token ids alone.
    EXPECT_EQ(client.post(kText, body.dump()).status, 400);
  }
  const Json settings =
      client.post("/completion", Json{{"prompt", "The"}, {"n_predict", 1}, {"ignore_eos", true}}.dump())
          .json()["generation_settings"];
  ASSERT_FALSE(settings["logit_bias"].empty());
  EXPECT_TRUE(settings["logit_bias"][0]["bias"].is_null());
}

TEST(ServeCompat, TimingsAreNumbersAndTheFirstTokenIsThePrompts) {
  TestServer server;
  Client client(server.port());
  for (const int tokens : {1, 8}) {
    const Json timings =
        client.post("/completion", Json{{"prompt", "The sea"}, {"n_predict", tokens}, {"ignore_eos", true}}.dump())
            .json()["timings"];
    for (const auto& [name, value] : timings.items()) EXPECT_TRUE(value.is_number()) << name;
    EXPECT_EQ(timings["predicted_n"], tokens);
    EXPECT_EQ(timings["predicted_per_second"] == 0, tokens == 1);
  }
  const Json chat = client.post(kChat, Json{{"messages", {kQuestion}}, {"max_tokens", 2}}.dump()).json();
  EXPECT_TRUE(chat["timings"]["prompt_n"].is_number());
  EXPECT_TRUE(chat["system_fingerprint"].is_string());
  EXPECT_FALSE(chat.contains("__verbose"));
}

TEST(ServeCompat, MetricsHaveLlamaServersNamesWhereAskedFor) {
  TestServer plain;
  EXPECT_EQ(Client(plain.port()).get("/metrics").body.find("llamacpp:"), std::string::npos);
  TestServer server([](serve::ServerOptions& options) { options.llama_metrics = true; });
  Client client(server.port());
  (void)client.post(kText, Json{{"prompt", "The sea"}, {"max_tokens", 5}, {"ignore_eos", true}}.dump());
  EXPECT_TRUE(server.metric_becomes("llamacpp:tokens_predicted_total", 5));
  EXPECT_GT(server.metric("llamacpp:prompt_seconds_total"), 0);
  EXPECT_EQ(server.metric("llamacpp:requests_processing"), 0);
}

}  // namespace
}  // namespace inferno::testing
