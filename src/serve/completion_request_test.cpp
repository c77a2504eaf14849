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
