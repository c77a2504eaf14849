#include "calls/format.h"

#include <gtest/gtest.h>

namespace inferno::calls {
namespace {

TEST(CallFormat, ATemplateShowsTheFormat) {
  const auto detected = [](std::string_view text) { return spec_of(detect_format(text)).name; };
  EXPECT_EQ(detected("{{ '<tool_call>\\n{\"name\": ' }}"), "hermes");
  EXPECT_EQ(detected("<tool_call>\n<function=example>\n<parameter=a>"), "qwen_tags");
  EXPECT_EQ(detected("{{ '<tool_call>' + name }}<arg_key>{{ k }}</arg_key>"), "glm_tags");
  EXPECT_EQ(detected("<seed:tool_call>\n<function="), "seed_tags");
  EXPECT_EQ(detected("<minimax:tool_call><invoke name="), "minimax_tags");
  EXPECT_EQ(detected("[TOOL_CALLS] [{"), "mistral_list");
  EXPECT_EQ(detected("[TOOL_CALLS]{{ name }}[ARGS]"), "mistral_named");
  EXPECT_EQ(detected("<|start|>assistant<|channel|>analysis<|message|>"), "harmony");
  EXPECT_EQ(detected("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json"), "deepseek_json");
  EXPECT_EQ(detected("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"), "deepseek_named");
  EXPECT_EQ(detected("{{ '<|tool_call>call:' + name }}"), "gemma");
  EXPECT_EQ(detected("<start_function_call>call:"), "function_gemma");
  EXPECT_EQ(detected("<|tool_call_start|>["), "lfm_pythonic");
  EXPECT_EQ(detected("List of tools: <|tool_list_start|>["), "lfm_pythonic");
  EXPECT_EQ(detected("<|tool_call|>[{"), "granite_list");
  EXPECT_EQ(detected("<|start_header_id|> [func_name1(params_name1=params_value1)]"), "llama_pythonic");
  EXPECT_EQ(detected("<|start_header_id|> {\"name\": function name, \"parameters\": dictionary}"), "llama_json");
}

TEST(CallFormat, ATemplateThatShowsNoneGetsHermes) {
  EXPECT_EQ(detect_format(""), Format::hermes);
  EXPECT_EQ(detect_format("<|im_start|>{{ message.role }}"), Format::hermes);
}

TEST(CallFormat, SpecsAreInTheOrderOfTheirFormats) {
  for (int i = 0; i <= static_cast<int>(Format::function_gemma); ++i) {
    EXPECT_EQ(spec_of(static_cast<Format>(i)).format, static_cast<Format>(i));
  }
}

}  // namespace
}  // namespace inferno::calls
