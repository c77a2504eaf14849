// Answers that call tools, by a model that knows nothing of them: what must be is enforced, and forms play the model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "inferno/inferno.h"

namespace inferno {
namespace {

using Json = nlohmann::json;

const std::string kTools =
    R"([{"type":"function","function":{"name":"weather","description":"of a place","parameters":{"type":"object",
    "properties":{"place":{"enum":["sea","land"]},"days":{"type":"integer","minimum":1,"maximum":9}},
    "required":["place","days"],"additionalProperties":false}}},
    {"type":"function","function":{"name":"now","parameters":{"type":"object","additionalProperties":false}}}])";

Prompt::Chat asked(const std::string& choice) {
  return {.messages = {{.role = "user", .content = "How is the sea?"}},
          .options = {.tools = kTools, .tool_choice = choice, .chat_template = "chatml"}};
}

GenerateOptions hot(uint64_t seed) {
  return {.max_new_tokens = 300, .sampling = {.temperature = 1, .seed = seed}};
}

GenerateOptions says(const std::string& text) {
  GenerateOptions options{.max_new_tokens = 300};
  options.constraint.choice = {text};
  return options;
}

TEST(Answer, ARequiredCallIsMadeAndFitsItsSchema) {
  Llm llm = Llm::builtin();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    ChatMessage joined;
    const ChatAnswer answer =
        llm.answer(asked(seed % 2 == 0 ? "required" : "weather"), hot(seed), [&](const AnswerPiece& piece) {
          joined.content += piece.content;
          for (const ToolCallPiece& part : piece.calls) {
            if (!part.name.empty()) joined.tool_calls.push_back({.id = part.id, .name = part.name});
            joined.tool_calls.at(part.index).arguments += part.arguments;
          }
          return true;
        });
    if (answer.result.reason() == StopReason::length) continue;
    ASSERT_FALSE(answer.message.tool_calls.empty()) << answer.result.text();
    EXPECT_EQ(answer.message.content, "");
    EXPECT_TRUE(answer.calls_tools());
    ASSERT_EQ(joined.tool_calls.size(), answer.message.tool_calls.size());
    for (size_t i = 0; i < joined.tool_calls.size(); ++i) {
      const ToolCall& call = answer.message.tool_calls[i];
      EXPECT_EQ(joined.tool_calls[i].arguments, call.arguments);
      EXPECT_EQ(joined.tool_calls[i].id, call.id);
      const Json arguments = Json::parse(call.arguments);
      if (seed % 2 == 1) {
        EXPECT_EQ(call.name, "weather");
      }
      if (call.name != "weather") continue;
      EXPECT_TRUE(arguments["place"] == "sea" || arguments["place"] == "land") << call.arguments;
      EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 9) << call.arguments;
    }
  }
}

TEST(Answer, CallsAreReadAndGoIntoTheNextTurn) {
  Llm llm = Llm::builtin();
  Prompt::Chat chat = asked("auto");
  const std::string text =
      "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"sea\"}}\n"
      "</tool_call>";
  const ChatAnswer answer = llm.answer(chat, says(text));
  EXPECT_EQ(answer.message.role, "assistant");
  EXPECT_EQ(answer.message.reasoning_content, "Hm.");
  EXPECT_EQ(answer.message.content, "I look.");
  ASSERT_EQ(answer.message.tool_calls.size(), 1U);
  EXPECT_EQ(answer.message.tool_calls[0].arguments, "{\"place\": \"sea\"}");
  chat.messages.push_back(answer.message);
  chat.messages.push_back(
      {.role = "tool", .content = "calm", .tool_call_id = answer.message.tool_calls[0].id, .name = "weather"});
  EXPECT_NE(llm.render(chat).find("calm"), std::string::npos);
  EXPECT_FALSE(llm.answer(chat, says("Fine.")).calls_tools());
}

TEST(Answer, OfARequestThatWasSubmittedIsReadAsItComes) {
  Llm llm = Llm::builtin();
  const Prompt::Chat chat = asked("now");
  AnswerReader reader = llm.answer_reader(chat);
  const Generation generation = llm.submit(Prompt(chat.messages, chat.options), hot(1));
  std::string name;
  while (const auto text = generation.next()) {
    for (const ToolCallPiece& part : reader.push(*text).calls) name += part.name;
  }
  for (const ToolCallPiece& part : reader.finish().calls) name += part.name;
  EXPECT_EQ(name, "now");
  ASSERT_EQ(reader.message().tool_calls.size(), 1U);
  EXPECT_EQ(Json::parse(reader.message().tool_calls[0].arguments), Json::object());
}

TEST(Answer, FreeTextIsTheSameWithToolsAndOneCallIsAllWhereNoMoreAreAllowed) {
  Llm llm = Llm::builtin();
  GenerateOptions options{.max_new_tokens = 60};
  // The same prompt without the grammar of calls: as text.
  const Prompt::Chat chat = asked("auto");
  const std::vector<int32_t> ids = llm.encode(Prompt(chat.messages, chat.options));
  EXPECT_EQ(llm.answer(chat, options).result.ids(), llm.generate(Prompt(ids), options).ids());
}

TEST(Answer, WithoutToolsNoneAreShownAndNothingIsACall) {
  Llm llm = Llm::builtin();
  Prompt::Chat chat = asked("none");
  EXPECT_EQ(llm.render(chat).find("weather"), std::string::npos);
  const std::string text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(llm.answer(chat, says(text)).message.content, text);
}

TEST(Answer, WhatCannotBeMeantIsAnError) {
  Llm llm = Llm::builtin();
  const auto error_of = [&](const Prompt::Chat& chat, const GenerateOptions& options = {}) {
    try {
      (void)llm.answer(chat, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of(asked("fly")).find("names \"fly\""), std::string::npos);
  EXPECT_NE(error_of(asked("required"), says("x")).find("tool_choice"), std::string::npos);
  Prompt::Chat chat = asked("auto");
  chat.options.tools = R"([{"function":{"name":"a b"}}])";
  EXPECT_NE(error_of(chat).find("tools[0].function.name"), std::string::npos);
  chat.options.tools = R"([{"function":{"name":"f","strict":true,"parameters":{"not":{}}}}])";
  EXPECT_NE(error_of(chat).find("not"), std::string::npos);
  chat.options.tools = "{}";
  EXPECT_FALSE(error_of(chat).empty());
}

}  // namespace
}  // namespace inferno
