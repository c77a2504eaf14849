#include "calls/parser.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "support/sanitized.h"

namespace inferno::calls {
namespace {

std::shared_ptr<const ToolList> parser_tools() {
  return std::make_shared<const ToolList>(ToolList{
      {.name = "write",
       .parameters =
           nlohmann::ordered_json::parse(R"({"properties":{"text":{"type":"string"},"n":{"type":"integer"}}})")},
      {.name = "now"}});
}

void append(std::vector<Event>& all, std::vector<Event> more) {
  for (Event& event : more) {
    if (!all.empty() && all.back().kind == event.kind && event.kind != EventKind::call &&
        event.kind != EventKind::call_end) {
      all.back().text += event.text;
    } else {
      all.push_back(std::move(event));
    }
  }
}

// The events of a text that arrives in pieces of so many bytes, the first of them of another size.
std::vector<Event> events_of(Format format, std::string_view text, size_t first, size_t size) {
  Parser parser(format, parser_tools());
  std::vector<Event> all;
  append(all, parser.push(text.substr(0, first)));
  for (size_t at = first; at < text.size(); at += size) append(all, parser.push(text.substr(at, size)));
  append(all, parser.finish());
  return all;
}

// Text as it is, thinking as {...}, a call as name(arguments).
std::string shown(const std::vector<Event>& events) {
  std::string out;
  for (const Event& event : events) {
    switch (event.kind) {
      case EventKind::text:
        out += event.text;
        break;
      case EventKind::thinking:
        out += "{" + event.text + "}";
        break;
      case EventKind::call:
        out += "@" + event.text + "(";
        break;
      case EventKind::arguments:
        out += event.text;
        break;
      case EventKind::call_end:
        out += ")";
    }
  }
  return out;
}

// Cut anywhere, and everywhere, the same events come out.
void expect_events(Format format, std::string_view text, std::string_view expected) {
  SCOPED_TRACE(fmt::format("{}: {}", spec_of(format).name, text));
  const std::vector<Event> whole = events_of(format, text, text.size(), 1);
  EXPECT_EQ(shown(whole), expected);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_TRUE(events_of(format, text, cut, text.size()) == whole) << "cut at " << cut;
  }
  ASSERT_TRUE(events_of(format, text, 0, 1) == whole) << "byte by byte";
}

TEST(CallParser, HermesAndQwen) {
  const auto expect = [](std::string_view text, std::string_view shown) { expect_events(Format::hermes, text, shown); };
  expect(
      "Let me look.\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"U\\\"}TC\", \"n\": [1, "
      "{}]}}\n</tool_call>",
      "Let me look.@now({\"zone\": \"U\\\"}TC\", \"n\": [1, {}]})");
  expect(
      "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"x\":1},\"name\":\"b\"}</"
      "tool_call> Done.\n",
      "@a({})@b({\"x\":1})Done.\n");
  expect("<tool_call>{\"name\":\"a\"}</tool_call>", "@a({})");
  expect(R"x(<tool_call>{"name":"a","arguments":{"path":"C:\\"}}</tool_call> "b")x", R"x(@a({"path":"C:\\"})"b")x");
  expect("<tool_call>{\"name\":\"a\",\"arguments\":null,\"id\":\"x\"}</tool_call>", "@a({})");
  expect("<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"x\\\": 1}\"}</tool_call>", "@a({\"x\": 1})");
  expect("plain text with < and <tool and {\"name\": 1} ", "plain text with < and <tool and {\"name\": 1} ");
}

TEST(CallParser, HermesModelsThatWriteTagsAreUnderstood) {
  expect_events(Format::hermes, "<tool_call>\n<function=now>\n</function>\n</tool_call>", "@now({})");
}

TEST(CallParser, Tags) {
  expect_events(
      Format::qwen_tags,
      "I write.\n<tool_call>\n<function=write>\n<parameter=text>\nline \"1\"\n<b>\n\n</parameter>\n<parameter=n>\n3\n"
      "</parameter>\n<parameter=other>\nwords\n</parameter>\n</function>\n</tool_call>",
      "I write.@write({\"text\":\"line \\\"1\\\"\\n<b>\\n\",\"n\":3,\"other\":\"words\"})");
  expect_events(Format::qwen_tags, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "@now({})");
  expect_events(
      Format::seed_tags,
      "<seed:tool_call>\n<function=now>\n</function>\n<function=write>\n<parameter=text>1</parameter>\n</function>\n"
      "</seed:tool_call> ok",
      "@now({})@write({\"text\":\"1\"})ok");
  expect_events(Format::minimax_tags,
                "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"text\">a\tb</parameter>\n<parameter "
                "name=\"list\">[1,2]</parameter>\n</invoke>\n<invoke name=\"now\"></invoke>\n</minimax:tool_call>",
                "@write({\"text\":\"a\\u0009b\",\"list\":[1,2]})@now({})");
  expect_events(Format::glm_tags,
                "\n<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>12</arg_value>\n<arg_key>n</arg_key>\n"
                "<arg_value>12</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
                "@write({\"text\":\"12\",\"n\":12})@now({})");
}

TEST(CallParser, LlamaJson) {
  const auto expect = [](std::string_view text, std::string_view shown) {
    expect_events(Format::llama_json, text, shown);
  };
  expect("{\"name\": \"now\", \"parameters\": {\"zone\": \"UTC\"}}", "@now({\"zone\": \"UTC\"})");
  expect("<|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}", "@a({})@b({})");
  expect("{\"type\": \"function\", \"name\": \"a\", \"parameters\": {}}", "@a({})");
  expect("The answer is {\"name\": \"now\", \"parameters\": {}}",
         "The answer is {\"name\": \"now\", \"parameters\": {}}");
  expect("{\"city\": \"Paris\"}", "{\"city\": \"Paris\"}");
}

TEST(CallParser, Pythonic) {
  expect_events(Format::llama_pythonic,
                "[now(zone='U\\'T\\u00e4', flags=[True, None, -1.5e3,], of={'a': (1, \"b\")}), later()]",
                "@now({\"zone\":\"U'Tä\",\"flags\":[true,null,-1.5e3],\"of\":{\"a\":[1,\"b\"]}})@later({})");
  expect_events(Format::llama_pythonic, "[1, 2, 3] are numbers", "[1, 2, 3] are numbers");
  expect_events(Format::llama_pythonic, "[f(a=1), 2]", "@f({\"a\":1}), 2]");
  expect_events(Format::lfm_pythonic, "Wait.<|tool_call_start|>[now(zone=\"UTC\")]<|tool_call_end|>Checking.",
                "Wait.@now({\"zone\":\"UTC\"})Checking.");
}

TEST(CallParser, Mistral) {
  expect_events(
      Format::mistral_list,
      "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": \"]\"}, \"id\": \"123456789\"}, {\"name\": \"b\", "
      "\"arguments\": {}}]",
      "@a({\"x\": \"]\"})@b({})");
  expect_events(Format::mistral_named, "Hm.[TOOL_CALLS]a[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]123456789[ARGS]{}",
                "Hm.@a({\"x\": 1})@b({})");
  expect_events(Format::mistral_named, "[TOOL_CALLS]a{\"x\": 1}", "@a({\"x\": 1})");
}

TEST(CallParser, Granite) {
  expect_events(Format::granite_list, "<|tool_call|>[{\"name\": \"a\", \"arguments\": {}}]", "@a({})");
  expect_events(Format::granite_list, "<|tool_call|>[{\"name\": \"a\", \"arguments\": {}}]<|/tool_call|> x", "@a({})x");
}

TEST(CallParser, Harmony) {
  const auto expect = [](std::string_view text, std::string_view shown) {
    expect_events(Format::harmony, text, shown);
  };
  expect(
      "<|channel|>analysis<|message|>Think <b>.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
      "<|constrain|>json<|message|>{\"zone\": \"UTC\"}<|call|>",
      "{Think <b>.}@now({\"zone\": \"UTC\"})");
  expect(
      "<|channel|>commentary<|message|>First I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary "
      "json<|message|>{}",
      "First I look.@now({})");
  expect("<|channel|>final<|message|>It is noon.<|return|>", "It is noon.");
  expect("no channel at all", "no channel at all");
  expect("<|channel|>final", "<|channel|>final");
}

TEST(CallParser, DeepSeek) {
  expect_events(Format::deepseek_json,
                "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"zone\": "
                "\"UTC\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>b\n```json\n{}\n```"
                "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                "Ok.@now({\"zone\": \"UTC\"})@b({})");
  expect_events(Format::deepseek_named,
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"zone\": \"UTC\"}<｜tool▁call▁end｜>"
                "<｜tool▁calls▁end｜>",
                "@now({\"zone\": \"UTC\"})");
}

TEST(CallParser, Gemma) {
  expect_events(Format::gemma,
                "<|tool_call>call:now{zone:<|\"|>U{T,C\"<|\"|>,n:3,list:[<|\"|>a<|\"|>,true],of:{<|\"|>k<|\"|>:null}}<"
                "tool_call|>",
                "@now({\"zone\":\"U{T,C\\\"\",\"n\":3,\"list\":[\"a\",true],\"of\":{\"k\":null}})");
  expect_events(Format::function_gemma, "<start_function_call>call:now{zone:<escape>UTC<escape>}<end_function_call>",
                "@now({\"zone\":\"UTC\"})");
}

TEST(CallParser, WhatTurnsOutToBeNoCallIsText) {
  const std::pair<Format, const char*> texts[] = {
      {Format::hermes, "<tool_call>soon</tool_call>"},
      {Format::hermes, "<tool_call>{\"nme\": \"a\"}</tool_call>"},
      {Format::hermes, "<tool_call>{\"name\": 3}</tool_call>"},
      {Format::hermes, "a <tool_call> <tool_ca"},
      {Format::hermes, "<tool_call>\n{\"name\": \"a\", \"arg"},
      {Format::hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": "},
      {Format::qwen_tags, "<tool_call><function=><parameter>"},
      {Format::qwen_tags, "<tool_call><function=f>no tag"},
      {Format::mistral_named, "[TOOL_CALLS] and more"},
      {Format::mistral_list, "[TOOL_CALLS] [1]"},
      {Format::llama_json, "{\"name\": \"a\", oops"},
      {Format::llama_json, "<|python_tag|>print(1)"},
      {Format::llama_pythonic, "[f(a=1"},
      {Format::llama_pythonic, "[f(a=b)]"},
      {Format::gemma, "<|tool_call>call:f{a:[}<tool_call|>"},
      {Format::deepseek_named, "<｜tool▁call▁begin｜>a b<｜tool▁sep｜>"},
      {Format::harmony, "<|channel|>commentary to=functions.f"},
  };
  for (const auto& [format, text] : texts) expect_events(format, text, text);
}

TEST(CallParser, ACallThatBreaksOffEndsAndTheRestIsText) {
  expect_events(Format::hermes, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"y", "@a({\"x\": \"y)");
  expect_events(Format::hermes, "<tool_call>{\"name\": \"a\", \"arguments\": {}} oops</tool_call>",
                "@a({})oops</tool_call>");
  expect_events(Format::hermes, "<tool_call>{\"name\": \"a\", \"arguments\": {}} </tool_caXX", "@a({})</tool_caXX");
  expect_events(Format::qwen_tags, "<tool_call><function=write><parameter=text>ab</para",
                "@write({\"text\":\"ab</para)");
  expect_events(Format::harmony, "<|channel|>commentary to=functions.f<|message|>{\"a\": <|en", "@f({\"a\": <|en)");
}

TEST(CallParser, DeepNestingIsText) {
  const std::string deep = "[f(a=" + std::string(5000, '[') + std::string(5000, ']') + ")]";
  EXPECT_EQ(shown(events_of(Format::llama_pythonic, deep, deep.size(), 1)), deep);
}

// Megabytes of what is held back or looked for again and again: quadratic time would take hours.
TEST(CallParser, TimeIsLinear) {
  const auto many = [](std::string_view part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  constexpr size_t kBytes = kSanitized ? 200'000 : 2'000'000;
  const std::pair<Format, std::string> texts[] = {
      {Format::hermes, many("<tool_call", kBytes)},
      {Format::hermes, many("<tool_call>", kBytes)},
      {Format::hermes, "<tool_call>{\"arguments\":{\"a\":\"" + many("<x>", kBytes)},
      {Format::hermes, many(" \n", kBytes)},
      {Format::qwen_tags, "<tool_call><function=write><parameter=text>" + many("</parameter", kBytes)},
      {Format::qwen_tags, "<tool_call><function=write><parameter=n>" + many("</parameter", kBytes)},
      {Format::llama_pythonic, "[f(a='" + many("\\'", kBytes)},
      {Format::gemma, "<|tool_call>call:f{a:<|\"|>" + many("<|\"", kBytes)},
      {Format::harmony, "<|channel|>final<|message|>" + many("<|end", kBytes)},
      {Format::deepseek_named, many("<｜tool▁call", kBytes)},
  };
  for (const auto& [format, text] : texts) EXPECT_FALSE(events_of(format, text, 0, 7).empty());
}

}  // namespace
}  // namespace inferno::calls
