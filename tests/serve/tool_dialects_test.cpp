// Calls of tools in the words of Anthropic, Ollama and OpenAI's responses. A form that the answer must have plays the
// model.
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

constexpr const char* kTwoCalls =
    "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"sea\", \"days\": 2}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

Json schema() {
  return Json::parse(R"({"type":"object","properties":{"place":{"enum":["sea","land"]},
    "days":{"type":"integer","minimum":0,"maximum":9}},"required":["place","days"],"additionalProperties":false})");
}
Json empty_schema() {
  return {{"type", "object"}, {"additionalProperties", false}};
}

Json anthropic(const Json& more) {
  Json body = {{"model", "story"},
               {"max_tokens", 300},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"tools",
                {{{"name", "weather"}, {"description", "of a place"}, {"input_schema", schema()}},
                 {{"name", "time"}, {"input_schema", empty_schema()}}}}};
  body.update(more);
  return body;
}

Json answer_of(Client& client, const char* path, const Json& body) {
  const Reply reply = client.post(path, body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json();
}

TEST(ServeAnthropicTools, CallsAreBlocksAndAStreamBuildsTheSame) {
  TestServer server;
  Client client(server.port());
  Json body = anthropic({{"choice", {kTwoCalls}}});
  const Json whole = answer_of(client, "/v1/messages", body);
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  ASSERT_EQ(whole["content"].size(), 3U) << whole.dump();
  EXPECT_EQ(whole["content"][0]["text"], "I look.");
  EXPECT_EQ(whole["content"][1]["type"], "tool_use");
  EXPECT_EQ(whole["content"][1]["name"], "weather");
  EXPECT_EQ(whole["content"][1]["input"], (Json{{"place", "sea"}, {"days", 2}}));
  EXPECT_EQ(whole["content"][2]["input"], Json::object());

  body["stream"] = true;
  Json blocks = Json::array();
  std::string arguments;
  size_t open = 0;
  for (const auto& [name, event] : client.post("/v1/messages", body.dump()).named_events()) {
    if (name == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      EXPECT_EQ(open++, 0U) << "one block at a time";
      blocks.push_back(event["content_block"]);
      arguments.clear();
    } else if (name == "content_block_delta") {
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta") {
        blocks.back()["text"] = blocks.back()["text"].get<std::string>() + delta["text"].get<std::string>();
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        arguments += delta["partial_json"];
      }
    } else if (name == "content_block_stop") {
      --open;
      if (blocks.back()["type"] == "tool_use") blocks.back()["input"] = Json::parse(arguments);
    } else if (name == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
    }
  }
  ASSERT_EQ(blocks.size(), whole["content"].size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const char* key : {"type", "name", "input", "text"}) {
      EXPECT_EQ(blocks[i].value(key, Json()), whole["content"][i].value(key, Json())) << i << key;
    }
  }
}

TEST(ServeAnthropicTools, ChoicesAreKeptAndResultsArePartOfTheConversation) {
  TestServer server;
  Client client(server.port());
  for (const Json& choice : {Json{{"type", "any"}}, Json{{"type", "tool"}, {"name", "weather"}}}) {
    Json asked = choice;
    asked["disable_parallel_tool_use"] = true;
    const Json made = answer_of(client, "/v1/messages", anthropic({{"tool_choice", asked}, {"temperature", 0}}));
    ASSERT_EQ(made["content"].size(), 1U) << made.dump();
    EXPECT_EQ(made["content"][0]["type"], "tool_use");
  }
  const auto conversation = [](const Json& place) {
    return Json{
        {{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"},
         {"content",
          {{{"type", "text"}, {"text", "I look."}},
           {{"type", "tool_use"}, {"id", "t1"}, {"name", "weather"}, {"input", {{"place", place}}}}}}},
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {{{"type", "text"}, {"text", "calm"}}}}},
           {{"type", "text"}, {"text", "And?"}}}}}};
  };
  Json body = anthropic({{"choice", {"Fine."}}});
  const Json alone = client.post("/v1/messages/count_tokens", body.dump()).json();
  body["messages"] = conversation("sea");
  EXPECT_EQ(answer_of(client, "/v1/messages", body)["content"][0]["text"], "Fine.");
  const Json with = client.post("/v1/messages/count_tokens", body.dump()).json();
  EXPECT_GT(with["input_tokens"], alone["input_tokens"]);
  body.erase("tools");
  EXPECT_LT(client.post("/v1/messages/count_tokens", body.dump()).json()["input_tokens"], with["input_tokens"])
      << "tools are part of the prompt";
  body["messages"][2]["content"][0].erase("tool_use_id");
  EXPECT_EQ(client.post("/v1/messages", body.dump()).status, 400);
  EXPECT_EQ(client.post("/v1/messages", anthropic({{"tool_choice", {{"type", "tool"}, {"name", "x"}}}}).dump()).status,
            400);
}

Json ollama(const Json& more) {
  Json body = {{"model", "story"},
               {"stream", false},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"tools", {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", schema()}}}}}}};
  body.update(more);
  return body;
}

TEST(ServeOllamaTools, CallsHaveArgumentsAsObjectsAndResultsArePartOfTheConversation) {
  TestServer server;
  Client client(server.port());
  Json body = ollama({{"choice", {kTwoCalls}}});
  const Json whole = answer_of(client, "/api/chat", body)["message"];
  EXPECT_EQ(whole["content"], "I look.");
  ASSERT_EQ(whole["tool_calls"].size(), 2U) << whole.dump();
  EXPECT_EQ(whole["tool_calls"][0]["function"]["arguments"], (Json{{"place", "sea"}, {"days", 2}}));

  body["stream"] = true;
  Json calls = Json::array();
  const std::vector<Json> lines = client.post("/api/chat", body.dump()).lines();
  for (const Json& line : lines) {
    for (const Json& call : line["message"].value("tool_calls", Json::array())) calls.push_back(call["function"]);
  }
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0], whole["tool_calls"][0]["function"]);
  EXPECT_EQ(lines.back()["done_reason"], "stop");
  EXPECT_FALSE(lines.back()["message"].contains("tool_calls"));

  body = ollama({{"choice", {"Fine."}}});
  body["messages"].push_back(whole);
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "calm"}});
  EXPECT_EQ(answer_of(client, "/api/chat", body)["message"]["content"], "Fine.");
  EXPECT_EQ(client.post("/api/generate", R"({"model":"story","prompt":"a","tools":[{}]})").status, 501);
}

Json responses(const Json& more) {
  Json body = {{"model", "story"},
               {"input", "Hi"},
               {"tools",
                {{{"type", "function"}, {"name", "weather"}, {"parameters", schema()}, {"strict", true}},
                 {{"type", "function"}, {"name", "time"}, {"parameters", empty_schema()}}}}};
  body.update(more);
  return body;
}

TEST(ServeResponsesTools, CallsAreItemsAndEventsBuildTheSame) {
  TestServer server;
  Client client(server.port());
  Json body = responses({{"choice", {kTwoCalls}}});
  const Json whole = answer_of(client, "/v1/responses", body);
  EXPECT_EQ(whole["status"], "completed");
  ASSERT_EQ(whole["output"].size(), 3U) << whole.dump();
  EXPECT_EQ(whole["output"][0]["type"], "message");
  EXPECT_EQ(whole["output"][1]["type"], "function_call");
  EXPECT_EQ(whole["output"][1]["name"], "weather");
  EXPECT_EQ(whole["output"][1]["arguments"], "{\"place\": \"sea\", \"days\": 2}");
  EXPECT_EQ(whole["tools"][0]["name"], "weather");
  EXPECT_EQ(whole["tools"][0]["strict"], true);

  body["stream"] = true;
  Json items = Json::array();
  std::string arguments;
  const auto events = client.post("/v1/responses", body.dump()).named_events();
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, event] = events[i];
    EXPECT_EQ(event["sequence_number"], i);
    if (name == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      arguments.clear();
    }
    if (name == "response.function_call_arguments.delta") arguments += event["delta"];
    if (name == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], arguments);
    }
    if (name == "response.output_item.done") items.push_back(event["item"]);
  }
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[1]["arguments"], whole["output"][1]["arguments"]);
  EXPECT_EQ(items[2]["name"], "time");
  EXPECT_NE(items[1]["id"], items[2]["id"]);
  EXPECT_EQ(events.back().first, "response.completed");
  EXPECT_EQ(events.back().second["response"]["output"], items);
}

TEST(ServeResponsesTools, CallsAndResultsArePartOfTheInputAndChoicesAreKept) {
  TestServer server;
  Client client(server.port());
  Json body = responses({{"choice", {"Fine."}}});
  body["input"] = {{{"role", "user"}, {"content", "Hi"}},
                   {{"type", "function_call"}, {"call_id", "c1"}, {"name", "time"}, {"arguments", "{}"}},
                   {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "noon"}}};
  EXPECT_EQ(answer_of(client, "/v1/responses", body)["output"][0]["content"][0]["text"], "Fine.");
  body["input"][2].erase("call_id");
  EXPECT_EQ(client.post("/v1/responses", body.dump()).status, 400);
  const Json named =
      answer_of(client, "/v1/responses",
                responses({{"tool_choice", {{"type", "function"}, {"name", "time"}}}, {"temperature", 0}}));
  ASSERT_EQ(named["output"].size(), 1U) << named.dump();
  EXPECT_EQ(named["output"][0]["name"], "time");
  EXPECT_EQ(named["tool_choice"]["name"], "time");
}

}  // namespace
}  // namespace inferno::testing
