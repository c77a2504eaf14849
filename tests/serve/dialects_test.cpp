// The other APIs: llama-server's, Anthropic's, Ollama's, OpenAI's responses. The same request gets the same text in
// each.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

const Json kMessages = {{{"role", "user"}, {"content", "Tell me of the sea."}}};

Json asked(Json body) {
  body["model"] = "story";
  body["temperature"] = 0;
  return body;
}

// What /v1/chat/completions says to kMessages in 12 tokens.
std::string expected_chat(Client& client) {
  return client.post("/v1/chat/completions", asked({{"messages", kMessages}, {"max_tokens", 12}}).dump())
      .json()["choices"][0]["message"]["content"];
}

TEST(ServeAnthropic, MessagesAreAnsweredWholeAndAsEvents) {
  TestServer server;
  Client client(server.port());
  const std::string text = expected_chat(client);
  Json body = asked({{"messages", kMessages}, {"max_tokens", 12}});
  const Json whole = client.post("/v1/messages?beta=true", body.dump()).json();
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["content"][0]["text"], text);
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_EQ(whole["usage"]["output_tokens"], 12);
  const Json counted = client.post("/v1/messages/count_tokens", body.dump()).json();
  EXPECT_EQ(counted["input_tokens"].get<int>(),
            whole["usage"]["input_tokens"].get<int>() + whole["usage"]["cache_read_input_tokens"].get<int>());

  body["stream"] = true;
  body["system"] = {{{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}}};
  const auto events = client.post("/v1/messages", body.dump()).named_events();
  ASSERT_GE(events.size(), 6U);
  EXPECT_EQ(events.front().first, "message_start");
  EXPECT_GT(events.front().second["message"]["usage"]["input_tokens"], 0);
  EXPECT_EQ(events[1].first, "content_block_start");
  EXPECT_EQ(events[2].second["delta"]["type"], "text_delta");
  EXPECT_EQ(events[events.size() - 3].first, "content_block_stop");
  EXPECT_EQ(events[events.size() - 2].second["delta"]["stop_reason"], "max_tokens");
  EXPECT_EQ(events[events.size() - 2].second["usage"]["output_tokens"], 12);
  EXPECT_EQ(events.back().first, "message_stop");
}

TEST(ServeAnthropic, AStopSequenceIsNamedAndErrorsHaveItsForm) {
  TestServer server;
  Client client(server.port());
  const std::string text = expected_chat(client);
  const std::string stop = text.substr(text.size() / 2, 3);
  Json body = asked({{"messages", kMessages}, {"max_tokens", 12}, {"stop_sequences", {"never said", stop}}});
  const Json answer = client.post("/v1/messages", body.dump()).json();
  EXPECT_EQ(answer["stop_reason"], "stop_sequence");
  EXPECT_EQ(answer["stop_sequence"], stop);
  body.erase("max_tokens");
  const Reply refused = client.post("/v1/messages", body.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["type"], "error");
  EXPECT_EQ(refused.json()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(client.get("/v1/messages").json()["error"]["type"], "invalid_request_error") << "405";
}

TEST(ServeResponses, AreAnsweredWholeAndAsNumberedEvents) {
  TestServer server;
  Client client(server.port());
  const std::string text = expected_chat(client);
  Json body = asked({{"input", "Tell me of the sea."}, {"max_output_tokens", 12}});
  const Json whole = client.post("/v1/responses", body.dump()).json();
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(whole["usage"]["output_tokens"], 12);
  body["input"] = {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Tell me of the sea."}}}}}};
  body["stream"] = true;
  const auto events = client.post("/v1/responses", body.dump()).named_events();
  std::string streamed;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].second["sequence_number"], i);
    if (events[i].first == "response.output_text.delta") streamed += events[i].second["delta"];
    if (events[i].first == "response.output_text.done") {
      EXPECT_EQ(events[i].second["text"], text);
    }
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(events.front().first, "response.created");
  EXPECT_EQ(events.back().first, "response.incomplete");
  EXPECT_EQ(events.back().second["response"]["output"][0]["content"][0]["text"], text);
  for (const char* refused :
       {R"({"input":"a","tools":[{"type":"web_search"}]})", R"({"input":"a","previous_response_id":"x"})",
        R"({"input":[{"type":"item_reference"}]})"}) {
    EXPECT_EQ(client.post("/v1/responses", refused).status, 501) << refused;
  }
}

TEST(ServeOllama, ChatAndGenerateAreLinesOfJson) {
  TestServer server;
  Client client(server.port());
  const std::string text = expected_chat(client);
  Json body = {{"model", "story:latest"},
               {"messages", kMessages},
               {"options", {{"temperature", 0}, {"num_predict", 12}, {"num_ctx", 4096}}}};
  const Reply reply = client.post("/api/chat", body.dump());
  EXPECT_EQ(reply.headers.at("content-type"), "application/x-ndjson");
  std::string streamed;
  const std::vector<Json> lines = reply.lines();
  for (const Json& line : lines) streamed += line["message"]["content"];
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(lines.front()["done"], false);
  EXPECT_EQ(lines.back()["done_reason"], "length");
  EXPECT_EQ(lines.back()["eval_count"], 12);
  body["stream"] = false;
  EXPECT_EQ(client.post("/api/chat", body.dump()).json()["message"]["content"], text);
  body["prompt"] = "Tell me of the sea.";
  EXPECT_EQ(client.post("/api/generate", body.dump()).json()["response"], text) << "through the chat template";
  body["raw"] = true;
  EXPECT_NE(client.post("/api/generate", body.dump()).json()["response"], text);
  EXPECT_EQ(client.post("/api/chat", R"({"model":"story"})").json()["done_reason"], "load");
  EXPECT_EQ(client.post("/api/chat", R"({"model":"other","messages":[]})").json()["error"].type(),
            Json::value_t::string);
}

TEST(ServeOllama, TellsWhichModelsThereAre) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(client.get("/api/tags").json()["models"][0]["name"], "story");
  EXPECT_EQ(client.get("/api/ps").json()["models"][0]["context_length"], 1024);
  EXPECT_TRUE(client.get("/api/version").json()["version"].is_string());
  const Json shown = client.post("/api/show", R"({"model":"story"})").json();
  EXPECT_EQ(shown["capabilities"][0], "completion");
  EXPECT_TRUE(shown["model_info"].contains("general.architecture"));
  EXPECT_EQ(client.post("/api/show", R"({"model":"other"})").status, 404);
}

TEST(ServeNative, CompletionHasTheFieldsOfLlamaServer) {
  TestServer server;
  Client client(server.port());
  Json body = {
      {"prompt", "The sea was"}, {"n_predict", 8}, {"temperature", 0}, {"n_probs", 2}, {"return_tokens", true}};
  const Json whole = client.post("/completion", body.dump()).json();
  EXPECT_EQ(whole["tokens"].size(), 8U);
  EXPECT_EQ(whole["stop_type"], "limit");
  EXPECT_EQ(whole["tokens_predicted"], 8);
  EXPECT_EQ(whole["timings"]["predicted_n"], 8);
  EXPECT_EQ(whole["completion_probabilities"].size(), 8U);
  EXPECT_EQ(whole["completion_probabilities"][0]["top_logprobs"].size(), 2U);
  body["stream"] = true;
  std::string streamed;
  const std::vector<std::string> events = client.post("/completion", body.dump()).events();
  for (const std::string& event : events) streamed += Json::parse(event)["content"];
  EXPECT_EQ(streamed, whole["content"].get<std::string>());
  EXPECT_EQ(Json::parse(events.back())["stop"], true);
  body["stream"] = false;
  body["prompt"] = {"The sea was", "A man"};
  const Json both = client.post("/completion", body.dump()).json();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0]["content"], whole["content"]);
  body["n_predict"] = 0;
  EXPECT_EQ(client.post("/completion", body.dump()).json()[0]["content"], "");
  EXPECT_EQ(client.post("/completion", R"({"prompt":"a","mirostat":2})").status, 501);
  EXPECT_EQ(client.post("/completion", R"({"prompt":"a","n_probs":2,"post_sampling_probs":true})").status, 501);
}

TEST(ServeTools, TextsBecomeTokensAndBackInBothForms) {
  TestServer server;
  Client client(server.port());
  const std::vector<int32_t> ids = server.engine().tokenizer()->encode("The sea");
  EXPECT_EQ(client.post("/tokenize", R"({"content":"The sea"})").json()["tokens"], ids);
  const Json pieces = client.post("/tokenize", R"({"content":"The sea","with_pieces":true})").json()["tokens"];
  EXPECT_EQ(pieces[0]["id"], ids[0]);
  const Json counted = client.post("/tokenize", R"({"prompt":"The sea","add_special_tokens":false})").json();
  EXPECT_EQ(counted["tokens"], ids);
  EXPECT_EQ(counted["count"], ids.size());
  EXPECT_EQ(counted["max_model_len"], 1024);
  EXPECT_EQ(client.post("/detokenize", Json{{"tokens", ids}}.dump()).json()["content"], "The sea");
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[999999999]})").status, 400);
  EXPECT_EQ(client.post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})").json()["prompt"],
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const Json chat = client.post("/tokenize", R"({"messages":[{"role":"user","content":"Hi"}]})").json();
  EXPECT_GT(chat["count"], 2);
  EXPECT_EQ(client.post("/tokenize", "{}").status, 400);
}

TEST(ServeTools, WhatIsNotThereYetSaysSoInOneLine) {
  TestServer server;
  Client client(server.port());
  for (const char* path : {"/infill"}) {
    const Reply reply = client.post(path, "{}");
    EXPECT_EQ(reply.status, 501) << path;
    EXPECT_NE(reply.body.find("not supported yet"), std::string::npos) << reply.body;
  }
}

}  // namespace
}  // namespace inferno::testing
