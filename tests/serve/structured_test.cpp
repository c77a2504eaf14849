// Answers with a form over HTTP: every field that asks for one, and what is refused.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

// A schema whose properties are not in the order of the alphabet.
constexpr const char* kSchema =
    R"({"type":"object","properties":{"z":{"type":"integer","minimum":1,"maximum":9},"a":{"type":"boolean"}},"required":["z","a"],"additionalProperties":false})";

void expect_form(const std::string& text) {
  const auto value = nlohmann::ordered_json::parse(text, nullptr, false);
  ASSERT_TRUE(value.is_object()) << text;
  ASSERT_EQ(value.size(), 2U) << text;
  EXPECT_EQ(value.items().begin().key(), "z") << "in the order of the schema";
  EXPECT_TRUE(value["z"].is_number_integer() && value["a"].is_boolean()) << text;
}

std::string text_of(Client& client, const std::string& fields) {
  const Reply reply = client.post(kText, fmt::format(R"({{"prompt":"The sea","max_tokens":200,"seed":1,{}}})", fields));
  EXPECT_EQ(reply.status, 200) << fields << reply.body;
  return reply.status == 200 ? reply.json()["choices"][0]["text"].get<std::string>() : "";
}

TEST(ServeStructured, EveryFieldThatAsksForAFormGetsIt) {
  TestServer server;
  Client client(server.port());
  for (const std::string& fields :
       {fmt::format(
            R"("response_format":{{"type":"json_schema","json_schema":{{"name":"n","strict":true,"schema":{}}}}})",
            kSchema),
        fmt::format(R"("response_format":{{"type":"json_object","schema":{}}})", kSchema),
        fmt::format(R"("json_schema":{})", kSchema), fmt::format(R"("guided_json":{})", kSchema),
        fmt::format(R"("structured_outputs":{{"json":{}}})", kSchema), fmt::format(R"("format":{})", kSchema)}) {
    SCOPED_TRACE(fields);
    expect_form(text_of(client, fields));
  }
  const std::string yes = text_of(client, R"("choice":["yes","no"])");
  EXPECT_TRUE(yes == "yes" || yes == "no") << yes;
  EXPECT_EQ(text_of(client, R"("regex":"[x]{3}")"), "xxx");
  EXPECT_EQ(text_of(client, R"("grammar":"root ::= \"ab\" \"c\"")"), "abc");
  EXPECT_EQ(text_of(client, R"("structured_outputs":{"regex":"y{2}"})"), "yy");
}

TEST(ServeStructured, ChatsStreamsAndOtherApisHaveIt) {
  TestServer server;
  Client client(server.port());
  const std::string chat = fmt::format(
      R"("messages":[{{"role":"user","content":"Hi"}}],"max_tokens":200,"seed":3,"response_format":{{"type":"json_schema","json_schema":{{"schema":{}}}}})",
      kSchema);
  const Reply whole = client.post(kChat, "{" + chat + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text = whole.json()["choices"][0]["message"]["content"];
  expect_form(text);
  EXPECT_EQ(whole.json()["choices"][0]["finish_reason"], "stop");
  std::string streamed;
  for (const std::string& event : client.post(kChat, "{" + chat + R"(,"stream":true})").events()) {
    if (event == "[DONE]") continue;
    const Json parsed = Json::parse(event);
    for (const Json& choice : parsed["choices"]) streamed += choice["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, text);
  const Reply responses = client.post(
      "/v1/responses",
      fmt::format(
          R"({{"input":"Hi","max_output_tokens":200,"text":{{"format":{{"type":"json_schema","name":"n","schema":{}}}}}}})",
          kSchema));
  ASSERT_EQ(responses.status, 200) << responses.body;
  expect_form(responses.json()["output"][0]["content"][0]["text"]);
  const Reply ollama = client.post(
      "/api/chat",
      fmt::format(
          R"({{"messages":[{{"role":"user","content":"Hi"}}],"stream":false,"options":{{"num_predict":200}},"format":{}}})",
          kSchema));
  ASSERT_EQ(ollama.status, 200) << ollama.body;
  expect_form(ollama.json()["message"]["content"]);
}

TEST(ServeStructured, WhatCannotBeEnforcedIsA400ThatNamesTheField) {
  TestServer server;
  Client client(server.port());
  const auto expect_400 = [&](const std::string& fields, const std::string& param, const std::string& part) {
    const Reply reply = client.post(kText, fmt::format(R"({{"prompt":"a",{}}})", fields));
    EXPECT_EQ(reply.status, 400) << fields << reply.body;
    const Json error = reply.json()["error"];
    EXPECT_EQ(error["param"], param) << reply.body;
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << reply.body;
  };
  const auto schema = [](const std::string& text) {
    return R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + text + "}}";
  };
  const std::string param = "response_format.json_schema.schema";
  expect_400(schema(R"({"type":"array","uniqueItems":true})"), param, "`uniqueItems` at #");
  expect_400(schema(R"({"properties":{"a":{"not":{}}}})"), param, "`not` at #/properties/a");
  expect_400(schema(R"({"enum":[]})"), param, "no text fits");
  expect_400(schema("5"), param, "schema");
  expect_400(R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "missing");
  expect_400(R"("response_format":{"type":"xml"})", "response_format.type", "xml");
  expect_400(R"-("regex":"(?=a)")-", "regex", "look-ahead");
  expect_400(R"("grammar":"root ::= nothing")", "grammar", "nothing");
  expect_400(R"("choice":[])", "choice", "empty");
  expect_400(R"("choice":[1])", "choice", "strings");
  expect_400(R"("regex":"a","grammar":"root ::= \"a\"")", "regex", "both");
}

TEST(ServeStructured, AnAnswerThatIsCutSaysSo) {
  TestServer server;
  Client client(server.port());
  const Reply reply =
      client.post(kText, R"({"prompt":"a","max_tokens":3,"json_schema":{"type":"string","minLength":100}})");
  EXPECT_EQ(reply.json()["choices"][0]["finish_reason"], "length");
}

}  // namespace
}  // namespace inferno::testing
