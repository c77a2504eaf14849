#include "serve/completion_request.h"

#include <gtest/gtest.h>

#include <random>

#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace inferno::serve {
namespace {

// Not in a time that grows with the square of it: this would take minutes.
TEST(JsonFields, AnArrayOfManyObjectsIsReadInOnePass) {
  std::string text = R"({"messages":[{})";
  for (int i = 1; i < 900'000; ++i) text += ",{}";
  const Json parsed = parse_object(text + "]}");
  EXPECT_EQ(parsed["messages"].size(), 900'000U);
}

const CompletionLimits kLimits{.context = 4096};

CompletionRequest parse(std::string_view body, Dialect dialect, uint64_t seed = 0) {
  return parse_completion(parse_object(body), body, dialect, kLimits, seed);
}

TEST(CompletionRequest, DefaultsAreOpenAis) {
  const CompletionRequest text = parse(R"({"prompt":"a"})", Dialect::openai_text, 42);
  EXPECT_EQ(text.settings.max_new_tokens, 16);
  EXPECT_EQ(text.settings.sampling.temperature, 1);
  EXPECT_EQ(text.settings.sampling.seed, 42U);
  EXPECT_EQ(text.settings.top_logprobs, -1);
  EXPECT_FALSE(text.stream);
  const CompletionRequest chat = parse(R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},
      {"type":"text","text":"b"}]}],"max_tokens":3,"max_completion_tokens":5})",
                                       Dialect::openai_chat);
  EXPECT_EQ(chat.settings.max_new_tokens, 5);
  const auto& messages = std::get<Prompt::Chat>(chat.prompts.at(0).content).messages;
  EXPECT_EQ(messages.at(0).role, "system");
  EXPECT_EQ(messages.at(0).content, "a\nb");
}

std::vector<ChatMessage> messages_of(std::string_view body, Dialect dialect) {
  return std::get<Prompt::Chat>(parse(body, dialect).prompts.at(0).content).messages;
}

// A model that calls tools goes on with what it thought before its calls.
TEST(CompletionRequest, WhatWasThoughtBeforeAnAnswerBelongsToIt) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const std::string body = fmt::format(
        R"({{"messages":[{{"role":"assistant","content":"b","{}":"a"}},{{"role":"user","content":"c"}}]}})", name);
    EXPECT_EQ(messages_of(body, Dialect::openai_chat).at(0).reasoning_content, "a") << name;
  }
  EXPECT_EQ(messages_of(R"({"messages":[{"role":"assistant","content":"b","thinking":"a"},
      {"role":"user","content":"c"}]})",
                        Dialect::ollama_chat)
                .at(0)
                .reasoning_content,
            "a");
  const auto anthropic = messages_of(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":""},{"type":"redacted_thinking"},
        {"type":"text","text":"b"},{"type":"tool_use","id":"1","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"c"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"d"},{"type":"text","text":"e"}]},
      {"role":"user","content":"y"}]})",
                                     Dialect::anthropic);
  ASSERT_EQ(anthropic.size(), 5U);
  EXPECT_EQ(anthropic[1].reasoning_content, "a");
  EXPECT_EQ(anthropic[1].content, "b");
  EXPECT_EQ(anthropic[3].reasoning_content, "d");
  const auto responses = messages_of(R"({"input":[{"role":"user","content":"x"},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"a"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"c"}]},
      {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"2","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"d"},
      {"type":"reasoning","summary":[]},{"role":"user","content":"y"}]})",
                                     Dialect::responses);
  ASSERT_EQ(responses.size(), 5U);
  EXPECT_EQ(responses[1].reasoning_content, "a");
  EXPECT_EQ(responses[1].content, "b");
  EXPECT_EQ(responses[2].reasoning_content, "c");
  EXPECT_EQ(responses[2].tool_calls.size(), 2U);
  EXPECT_EQ(responses[4].role, "user");
  for (const char* wrong : {R"({"messages":[{"role":"assistant","reasoning_content":5}]})",
                            R"({"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":{}}]}]})"}) {
    EXPECT_THROW(parse(wrong, Dialect::openai_chat), ApiError) << wrong;
  }
  EXPECT_THROW(parse(R"({"input":[{"type":"reasoning","content":"a"}]})", Dialect::responses), ApiError);
}

TEST(CompletionRequest, SeedsMayHave64BitsAndASign) {
  const auto seed_of = [](const char* body) { return parse(body, Dialect::openai_text).settings.sampling.seed; };
  EXPECT_EQ(seed_of(R"({"prompt":"a","seed":18446744073709551615})"), UINT64_MAX);
  EXPECT_EQ(seed_of(R"({"prompt":"a","seed":-1})"), UINT64_MAX);
}

TEST(CompletionRequest, ListsAreLimited) {
  std::string stops = R"({"prompt":"a","stop":[)";
  std::string bias = R"({"prompt":"a","logit_bias":{)";
  std::string prompts = R"({"prompt":[)";
  for (int i = 0; i < 2000; ++i) {
    stops += i == 0 ? "\"x\"" : ",\"x\"";
    bias += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
    prompts += i == 0 ? "\"x\"" : ",\"x\"";
  }
  for (const std::string& body :
       {stops + "]}", bias + "}}", prompts + "]}", std::string(R"({"prompt":["a","b"],"n":64})")}) {
    EXPECT_THROW(parse(body, Dialect::openai_text), ApiError) << body.substr(0, 40);
  }
}

// The order of a schema's members is kept by a tree that looks through all members of an object for each of them.
TEST(CompletionRequest, ABodyWithASchemaAndAnObjectOfVeryManyMembersIsAnErrorAtOnce) {
  std::string body = R"({"prompt":"a","json_schema":{},"x":{"a":0)";
  for (int i = 0; i < 500'000; ++i) body += fmt::format(",\"{}\":0", i);
  try {
    (void)parse(body + "}}", Dialect::openai_text);
    FAIL() << "it was taken";
  } catch (const ApiError& error) {
    EXPECT_STREQ(error.what(), "the body has an object with more than 10000 members");
  }
}

// Whatever the bytes are, there is a request or an ApiError.
TEST(CompletionRequest, MutatedBodiesNeverDoAnythingElse) {
  const std::string whole =
      R"({"model":"m","prompt":["a",[1,2]],"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],)"
      R"("stop":["b"],"n":2,"logit_bias":{"5":-1.5},"seed":1,"temperature":0.5,"stream_options":{"include_usage":true}})";
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = whole;
    for (int i = static_cast<int>(random() % 4); i >= 0; --i) {
      const size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, random() % 8);
          break;
        case 2:
          body.insert(at, body.substr(random() % body.size(), random() % 16));
          break;
        default:
          body.insert(at, 1, "{}[]\",:0-9eE.tfn\\"[random() % 17]);
      }
    }
    try {
      (void)parse(body, static_cast<Dialect>(round % 7));
    } catch (const ApiError& error) {
      EXPECT_TRUE(error.status() == 400 || error.status() == 501);
      (void)error_body(error);
    }
  }
}

}  // namespace
}  // namespace inferno::serve
