// What the completion endpoints answer.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/generate.h"
#include "engine/prompt.h"
#include "serve/client.h"

namespace inferno::testing {
namespace {

// The text of each choice of a stream, and its reason.
std::map<int, std::pair<std::string, std::string>> texts_of(const Reply& reply) {
  std::map<int, std::pair<std::string, std::string>> texts;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    const Json parsed = Json::parse(event);
    for (const Json& choice : parsed["choices"]) {
      auto& [text, reason] = texts[choice["index"]];
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta")) text += choice["delta"].value("content", "");
      if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    }
  }
  return texts;
}

TEST(ServeCompletions, TheAnswerIsWhatTheEngineMakesOfTheSameRequest) {
  // Long enough for its cached positions to be copied.
  constexpr const char* kPrompt = "The sea was calm, and the old man sat before the door of his house";
  TestServer server;
  const std::vector<int32_t> ids = encode_prompt(*server.engine().tokenizer(), kPrompt);
  Request request{.prompt = ids, .sampling = {.temperature = 0.8F, .top_k = 40, .min_p = 0.05F, .seed = 7}};
  request.max_new_tokens = 20;
  const RequestResult expected = server.engine().driver().run(request);

  Client client(server.port());
  Json body = {{"model", "story"}, {"prompt", kPrompt}, {"max_tokens", 20}, {"temperature", 0.8},
               {"top_k", 40},      {"min_p", 0.05},     {"seed", 7},        {"unknown_field", {1, 2}}};
  const Json answer = client.post(kText, body.dump()).json();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], expected.text());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], ids.size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], ids.size() - 1)
      << "the engine had just computed it";
  body["prompt"] = ids;
  EXPECT_EQ(client.post(kText, body.dump()).json()["choices"][0]["text"], expected.text()) << "token ids as the prompt";
}

TEST(ServeCompletions, AStreamHasTheShapesClientsExpectAndTheTextOfTheWholeAnswer) {
  TestServer server;
  Client client(server.port());
  Json body = {{"messages", {{{"role", "user"}, {"content", "Tell me of the sea."}}}},
               {"max_completion_tokens", 12},
               {"seed", 3}};
  const Json whole = client.post(kChat, body.dump()).json();
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  EXPECT_TRUE(whole["choices"][0]["logprobs"].is_null());

  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Reply reply = client.post(kChat, body.dump());
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
  const std::vector<std::string> events = reply.events();
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json first = Json::parse(events.front());
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(first["usage"].is_null());
  const Json ending = Json::parse(events[events.size() - 3]);
  EXPECT_EQ(ending["choices"][0]["delta"], Json::object());
  EXPECT_EQ(ending["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
  const Json usage = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_EQ(Json::parse(events[i])["id"], first["id"]);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], texts_of(reply)[0].first);
  EXPECT_EQ(client.get("/health").status, 200) << "the connection is good after a stream";
}

TEST(ServeCompletions, SeveralChoicesOfSeveralPromptsAreNumberedByPrompt) {
  TestServer server;
  Client client(server.port());
  Json body = {{"prompt", {"The sea", "A man"}}, {"n", 2}, {"max_tokens", 6}, {"seed", 11}, {"echo", true}};
  const Json whole = client.post(kText, body.dump()).json();
  ASSERT_EQ(whole["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_TRUE(whole["choices"][i]["text"].get<std::string>().starts_with(i < 2 ? "The sea" : "A man"));
  }
  EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 24);
  body["stream"] = true;
  auto streamed = texts_of(client.post(kText, body.dump()));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(whole["choices"][i]["text"], streamed[i].first);
}

TEST(ServeCompletions, StopStringsEndTheTextAndAreNoPartOfIt) {
  TestServer server;
  Client client(server.port());
  Json body = {{"prompt", "The sea was"}, {"temperature", 0}, {"max_tokens", 40}};
  const std::string text = client.post(kText, body.dump()).json()["choices"][0]["text"];
  const std::string stop = text.substr(text.size() / 2, 4);
  body["stop"] = {"never in a story 123", stop};
  const Json answer = client.post(kText, body.dump()).json()["choices"][0];
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["text"], text.substr(0, text.find(stop)));
  body["stop"] = stop;
  body["stream"] = true;
  EXPECT_EQ(texts_of(client.post(kText, body.dump()))[0],
            std::pair(answer["text"].get<std::string>(), std::string("stop")));
}

TEST(ServeCompletions, LogProbabilitiesHaveBothForms) {
  TestServer server;
  Client client(server.port());
  const Json text =
      client.post(kText, R"({"prompt":"The sea","max_tokens":5,"temperature":0,"logprobs":3})").json()["choices"][0];
  ASSERT_EQ(text["logprobs"]["tokens"].size(), 5U);
  EXPECT_EQ(text["logprobs"]["top_logprobs"][0].size(), 3U);
  EXPECT_LE(text["logprobs"]["token_logprobs"][4].get<double>(), 0);
  EXPECT_EQ(text["logprobs"]["text_offset"][0], 0);
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
               {"max_tokens", 5},
               {"temperature", 0},
               {"logprobs", true},
               {"top_logprobs", 2}};
  const Json chat = client.post(kChat, body.dump()).json()["choices"][0];
  ASSERT_FALSE(chat["logprobs"]["content"].empty());
  const Json& token = chat["logprobs"]["content"][0];
  EXPECT_EQ(token["top_logprobs"].size(), 2U);
  EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]) << "greedy: the drawn token is the likeliest";
  EXPECT_TRUE(token["bytes"].is_array());
  body["stream"] = true;
  size_t streamed = 0;
  for (const std::string& event : client.post(kChat, body.dump()).events()) {
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    if (logprobs.is_object()) streamed += logprobs["content"].size();
  }
  EXPECT_EQ(streamed, chat["logprobs"]["content"].size());
}

TEST(ServeCompletions, ABiasDecidesWhatIsDrawn) {
  TestServer server;
  const int32_t id = server.engine().tokenizer()->encode(" the").at(0);
  const Json body = {{"prompt", "Once"}, {"max_tokens", 3}, {"logit_bias", {{std::to_string(id), 100}}}};
  EXPECT_EQ(Client(server.port()).post(kText, body.dump()).json()["choices"][0]["text"], " the the the");
}

// The engine may be done before the server has begun the answer.
TEST(ServeCompletions, ShortAnswersAreGivenOnceHoweverFastTheyAre) {
  TestServer server;
  Client client(server.port());
  const Json body = {{"prompt", "Once"}, {"max_tokens", 1}, {"temperature", 0}, {"ignore_eos", true}};
  const std::string expected = client.post(kText, body.dump()).json()["choices"][0]["text"];
  Json streamed = body;
  streamed["stream"] = true;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(client.post(kText, body.dump()).json()["choices"][0]["text"], expected) << i;
    const Reply reply = client.post(kText, streamed.dump());
    ASSERT_EQ(texts_of(reply)[0].first, expected) << i;
    ASSERT_EQ(reply.events().size(), 3U) << i;
  }
  EXPECT_TRUE(server.metric_becomes("inferno_requests_open", 0));
}

TEST(ServeCompletions, AFieldOfTheWrongKindIsNamed) {
  TestServer server;
  Client client(server.port());
  const std::vector<std::pair<std::string, std::string>> cases = {{"temperature", "-1"},
                                                                  {"temperature", "1e39"},
                                                                  {"temperature", "\"x\""},
                                                                  {"top_p", "2"},
                                                                  {"top_k", "1.5"},
                                                                  {"min_p", "[]"},
                                                                  {"max_tokens", "-5"},
                                                                  {"max_tokens", "0"},
                                                                  {"max_tokens", "1e30"},
                                                                  {"n", "0"},
                                                                  {"n", "100000"},
                                                                  {"logprobs", "1000000"},
                                                                  {"seed", "1180591620717411303424"},
                                                                  {"seed", "\"7\""},
                                                                  {"stop", "5"},
                                                                  {"stop", "[\"\"]"},
                                                                  {"stop", "[1]"},
                                                                  {"stream", "1"},
                                                                  {"stream_options", "[]"},
                                                                  {"presence_penalty", "3"},
                                                                  {"frequency_penalty", "{}"},
                                                                  {"logit_bias", "[1]"},
                                                                  {"best_of", "3"},
                                                                  {"prompt", "[-1]"},
                                                                  {"prompt", "[[]]"},
                                                                  {"prompt", "[]"},
                                                                  {"prompt", "{}"},
                                                                  {"prompt", "[\"a\", 1]"},
                                                                  {"model", "[]"},
                                                                  {"repeat_penalty", "0"},
                                                                  {"echo", "1"}};
  for (const auto& [field, value] : cases) {
    const std::string prompt = field == "prompt" ? "" : R"("prompt":"a",)";
    const Reply reply = client.post(kText, fmt::format("{{{}\"{}\":{}}}", prompt, field, value));
    EXPECT_EQ(reply.status, 400) << field << " " << value;
    EXPECT_EQ(reply.json()["error"]["param"], field) << value;
  }
  for (const char* later : {R"("tools":[{}])", R"("suffix":"x")"}) {
    EXPECT_EQ(client.post(kText, fmt::format(R"({{"prompt":"a",{}}})", later)).status, 501) << later;
  }
  EXPECT_EQ(client.post(kText, R"({"prompt":"a","model":"../x"})").status, 404);
  EXPECT_EQ(client.post(kText, R"({"prompt":"a","max_tokens":2,"temperature":null,"n":1.0})").status, 200);
  EXPECT_EQ(client.post(kText, R"({"prompt":[999999999]})").status, 400);
  EXPECT_EQ(client.post(kText, R"({"prompt":"a","logit_bias":{"999999999":1}})").status, 400);
}

TEST(ServeCompletions, BodiesThatAreNoRequestAre400) {
  TestServer server;
  Client client(server.port());
  const std::string deep = std::string(100'000, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""), std::string("{\"prompt\":\"\xff\"}"),
        std::string(R"({"prompt":"\ud800"})"), deep, "{\"prompt\":" + deep, std::string("{\"n\":1e999}"),
        std::string("{\"a\":NaN}"), std::string("{}"), std::string(R"({"prompt":""})")}) {
    EXPECT_EQ(client.post(kText, body).status, 400) << body.substr(0, 40);
    EXPECT_EQ(client.post(kChat, body).status, 400) << body.substr(0, 40);
  }
  for (const char* messages : {"[]", "5", "[5]", "[{}]", R"([{"role":"user"}])", R"([{"role":"wizard","content":"a"}])",
                               R"([{"role":"user","content":[{"type":"image_url"}]}])"}) {
    const Reply reply = client.post(kChat, fmt::format(R"({{"messages":{}}})", messages));
    EXPECT_EQ(reply.status, 400) << messages;
    EXPECT_TRUE(reply.json()["error"]["param"].get<std::string>().starts_with("messages")) << messages;
  }
  std::string long_prompt;
  for (int i = 0; i < 3000; ++i) long_prompt += " word";
  const Reply reply = client.post(kText, Json{{"prompt", long_prompt}}.dump());
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
}

TEST(ServeCompletions, ThirtyTwoStreamsAtOnceAreEachWhatTheyAreAlone) {
  constexpr int kStreams = 32;
  const auto body = [](int i) {
    return Json{{"prompt", fmt::format("Chapter {}. The", i % 7)},
                {"max_tokens", 24},
                {"seed", i},
                {"stream", true},
                {"temperature", 0.9},
                {"ignore_eos", true},
                {"logprobs", i % 3},
                {"cache_prompt", i % 2 == 0}}
        .dump();
  };
  const auto without_ids = [](const Reply& reply) {
    Json events = Json::array();
    for (const std::string& event : reply.events()) {
      if (event != "[DONE]") events.push_back(Json::parse(event)["choices"]);
    }
    return events;
  };
  std::vector<Json> alone;
  {
    TestServer server;
    for (int i = 0; i < kStreams; ++i) alone.push_back(without_ids(Client(server.port()).post(kText, body(i))));
  }
  TestServer server;
  std::vector<Json> together(kStreams);
  std::vector<std::thread> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(
        [&, i] { together[static_cast<size_t>(i)] = without_ids(Client(server.port()).post(kText, body(i))); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < kStreams; ++i) EXPECT_EQ(together[i], alone[i]) << i;
  EXPECT_EQ(alone[1].size(), 25U);
}

TEST(ServeCompletions, GuessingAheadChangesNoTextAndIsCounted) {
  TestServer server;
  Client client(server.port());
  Json body = {{"prompt", "The sea, the sea, the sea, the"}, {"max_tokens", 60}, {"seed", 5}, {"temperature", 0.4}};
  const Json plain = client.post(kText, body.dump()).json();
  EXPECT_FALSE(plain["usage"].contains("completion_tokens_details"));
  body["lookup"] = true;
  body["prediction"] = {{"type", "content"}, {"content", plain["choices"][0]["text"]}};
  const Json made = client.post(kText, body.dump()).json();
  EXPECT_EQ(made["choices"], plain["choices"]);
  EXPECT_EQ(made["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
  const std::string metrics = client.get("/metrics").body;
  for (const char* name : {"inferno_drafted_tokens_total", "inferno_accepted_tokens_total"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
  body["lookup"] = 3;
  EXPECT_EQ(client.post(kText, body.dump()).status, 400);
  body["lookup"] = true;
  body["prediction"] = {{"type", "content"}, {"content", {1}}};
  EXPECT_EQ(client.post(kText, body.dump()).status, 400);
}

}  // namespace
}  // namespace inferno::testing
