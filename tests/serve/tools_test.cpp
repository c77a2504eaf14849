// Calls of tools over HTTP. A form that the answer must have plays the model that calls one.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

Json weather_tool() {
  return Json::parse(R"({"type":"function","function":{"name":"weather","description":"of a place","parameters":{
    "type":"object","properties":{"place":{"$ref":"#/$defs/place"},"days":{"type":"integer","minimum":1,"maximum":9}},
    "required":["place","days"],"additionalProperties":false,"$defs":{"place":{"enum":["sea","land"]}}}}})");
}
Json time_tool() {
  return Json::parse(
      R"({"type":"function","function":{"name":"time","parameters":{"type":"object","additionalProperties":false}}})");
}

// An answer that is exactly this text.
Json asked(const std::string& says, const Json& more = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"tools", {weather_tool(), time_tool()}},
               {"max_tokens", 300},
               {"seed", 5}};
  if (!says.empty()) body["choice"] = {says};
  body.update(more);
  return body;
}

Json choice_of(Client& client, const Json& body) {
  const Reply reply = client.post(kChat, body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.status == 200 ? reply.json()["choices"][0] : Json();
}

// The deltas of a stream put together as clients do.
Json joined(Client& client, Json body) {
  body["stream"] = true;
  Json message = {{"content", ""}, {"tool_calls", Json::array()}};
  Json reason;
  const Reply reply = client.post(kChat, body.dump());
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& choice : chunk["choices"]) {
      if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
      const Json& delta = choice["delta"];
      if (delta.contains("content"))
        message["content"] = message["content"].get<std::string>() + delta["content"].get<std::string>();
      for (const Json& piece : delta.value("tool_calls", Json::array())) {
        Json& calls = message["tool_calls"];
        if (piece["index"] == calls.size()) {
          calls.push_back({{"id", piece["id"]},
                           {"type", piece["type"]},
                           {"function", {{"name", piece["function"]["name"]}, {"arguments", ""}}}});
        }
        Json& arguments = calls[piece["index"].get<size_t>()]["function"]["arguments"];
        arguments = arguments.get<std::string>() + piece["function"]["arguments"].get<std::string>();
      }
    }
  }
  return {{"message", message}, {"finish_reason", reason}};
}

constexpr const char* kTwoCallsOfChat =
    "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"sea\", \"days\": 2}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

TEST(ServeCalls, CallsInAnAnswerAreToolCallsAndAStreamJoinsToTheSame) {
  TestServer server;
  Client client(server.port());
  const Json whole = choice_of(client, asked(kTwoCallsOfChat));
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], "I look.");
  const Json& calls = whole["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U) << whole.dump();
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>()), (Json{{"place", "sea"}, {"days", 2}}));
  EXPECT_EQ(calls[1]["function"]["name"], "time");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);

  Json streamed = joined(client, asked(kTwoCallsOfChat));
  EXPECT_EQ(streamed["finish_reason"], "tool_calls");
  EXPECT_EQ(streamed["message"]["content"], "I look.");
  ASSERT_EQ(streamed["message"]["tool_calls"].size(), 2U) << streamed.dump();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(streamed["message"]["tool_calls"][i]["function"], calls[i]["function"]);
  }
}

TEST(ServeCalls, AnAnswerWithoutACallIsTextAndOneThatIsCutSaysSo) {
  TestServer server;
  Client client(server.port());
  const Json text = choice_of(client, asked("No <tool> is needed."));
  EXPECT_EQ(text["message"]["content"], "No <tool> is needed.");
  EXPECT_EQ(text["finish_reason"], "stop");
  EXPECT_FALSE(text["message"].contains("tool_calls"));
  EXPECT_EQ(choice_of(client, asked(kTwoCallsOfChat, {{"tool_choice", "none"}}))["message"]["content"],
            kTwoCallsOfChat);
  EXPECT_EQ(choice_of(client, asked(kTwoCallsOfChat, {{"max_tokens", 5}}))["finish_reason"], "length");
}

TEST(ServeCalls, ACallThatIsRequiredIsMadeAndFitsItsSchema) {
  TestServer server;
  Client client(server.port());
  const Json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  for (int seed = 0; seed < 8; ++seed) {
    const Json body = asked("", {{"tool_choice", seed % 2 == 0 ? Json("required") : named}, {"seed", seed}});
    const Json choice = choice_of(client, body);
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U) << choice.dump();
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    const Json arguments = Json::parse(function["arguments"].get<std::string>());
    EXPECT_TRUE(arguments.is_object());
    if (function["name"] == "weather") {
      EXPECT_TRUE(arguments["place"] == "sea" || arguments["place"] == "land") << arguments;
      EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 9) << arguments;
    } else {
      EXPECT_EQ(function["name"], "time");
      EXPECT_EQ(seed % 2, 0);
    }
    EXPECT_EQ(joined(client, body)["message"]["tool_calls"][0]["function"], function);
  }
}

TEST(ServeCalls, CallsAndTheirResultsArePartOfTheConversation) {
  TestServer server;
  Client client(server.port());
  Json body = asked("Fine.");
  const Json call = {{"id", "c1"}, {"type", "function"}, {"function", {{"name", "time"}, {"arguments", "{}"}}}};
  body["messages"].push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "noon"}});
  EXPECT_EQ(choice_of(client, body)["message"]["content"], "Fine.");
}

TEST(ServeCalls, WhatCannotBeMeantIsRefusedWithItsField) {
  TestServer server;
  Client client(server.port());
  const auto refused = [&](const Json& more, int status, const char* field) {
    const Reply reply = client.post(kChat, asked("", more).dump());
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.json()["error"]["param"], field) << reply.body;
  };
  refused({{"tool_choice", "sometimes"}}, 400, "tool_choice");
  refused({{"tool_choice", {{"type", "function"}, {"function", {{"name", "fly"}}}}}}, 400, "tool_choice");
  refused({{"tool_choice", "required"}, {"tools", Json::array()}}, 400, "tool_choice");
  refused({{"tool_choice", "required"}, {"regex", "a"}}, 400, "tool_choice");
  refused({{"tools", {1}}}, 400, "tools[0]");
  refused({{"tools", {{{"type", "function"}}}}}, 400, "tools[0].name");
  refused({{"tools", {{{"function", {{"name", "a b"}}}}}}}, 400, "tools[0].function.name");
  refused({{"tools", {{{"function", {{"name", "f"}, {"parameters", 3}}}}}}}, 400, "tools[0].function.parameters");
  const Json strange = {
      {"function",
       {{"name", "f"}, {"parameters", {{"type", "object"}, {"unevaluatedProperties", {{"type", "string"}}}}}}}};
  refused({{"tools", {strange}}, {"tool_choice", "required"}}, 400, "tools");
  const Json strict = {{"function", {{"name", "f"}, {"strict", true}, {"parameters", {{"not", Json::object()}}}}}};
  refused({{"tools", {strict}}}, 400, "tools");
}

TEST(ServeCalls, FreeTextIsTheSameAndASchemaThatIsNotStrictIsNoReasonToRefuse) {
  TestServer server;
  Client client(server.port());
  Json body = asked("", {{"temperature", 0}, {"max_tokens", 20}});
  const Json with = choice_of(client, body);
  EXPECT_FALSE(with["message"]["content"].get<std::string>().empty());
  body["tools"].push_back({{"function", {{"name", "f"}, {"parameters", {{"not", Json::object()}}}}}});
  EXPECT_FALSE(choice_of(client, body).is_null());
}

}  // namespace
}  // namespace inferno::testing
