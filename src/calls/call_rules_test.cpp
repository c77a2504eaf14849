#include "calls/call_rules.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "calls/parser.h"
#include "grammar/matcher.h"

namespace inferno::calls {
namespace {

using grammar::Grammar;
using grammar::Matcher;
using grammar::TokenTrie;

// Some markers are control tokens, as in most vocabularies.
const std::vector<std::string> kControl = {"[TOOL_CALLS]",      "[ARGS]",    "<|channel|>", "<|message|>",
                                           "<|constrain|>",     "<|start|>", "<|end|>",     "<|tool_call_start|>",
                                           "<|tool_call_end|>", "<|other|>"};

// Every byte, two tokens that reach over the end of a marker, control tokens, and one that ends a text.
std::shared_ptr<const TokenTrie> trie() {
  static const auto kTrie = [] {
    static std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back("_call>{\"");
    texts.emplace_back("_call>Oh");
    for (const std::string& name : kControl) texts.push_back(TokenTrie::kControlByte + name);
    texts.emplace_back();
    const std::vector<std::string_view> pieces(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(pieces, std::vector<int32_t>{static_cast<int32_t>(texts.size() - 1)});
  }();
  return kTrie;
}
constexpr int32_t kFits = 256;
constexpr int32_t kDoesNot = 257;
constexpr int32_t kFirstControl = 258;

std::shared_ptr<const ToolList> tools() {
  const auto json = [](const char* text) { return nlohmann::ordered_json::parse(text); };
  return std::make_shared<const ToolList>(ToolList{
      {.name = "weather",
       .parameters = json(R"({"type":"object","properties":{"place":{"type":"string","enum":["sea","land"]},
        "days":{"$ref":"#/$defs/days","type":"integer"},"note":{"type":"string"}},"required":["place"],
        "additionalProperties":false,"$defs":{"days":{"minimum":1,"maximum":9}}})")},
      {.name = "now", .parameters = json(R"({"type":"object","properties":{},"additionalProperties":false})")}});
}

CallForm form_of(Format format) {
  return {.format = format, .tools = tools()};
}

// The tokens of a text: control tokens where their names are.
std::vector<int32_t> tokens_of(std::string_view text) {
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    size_t length = 1;
    auto token = static_cast<int32_t>(static_cast<unsigned char>(text[0]));
    for (size_t i = 0; i < kControl.size(); ++i) {
      if (!text.starts_with(kControl[i])) continue;
      length = kControl[i].size();
      token = kFirstControl + static_cast<int32_t>(i);
    }
    tokens.push_back(token);
    text.remove_prefix(length);
  }
  return tokens;
}

class Answers {
 public:
  explicit Answers(const CallForm& form) : grammar_(call_rules(form, {}, relaxed), trie()) {}

  // How much of the text fits; npos: all of it, and it may end.
  size_t fitting(std::string_view text) {
    Matcher matcher(grammar_);
    size_t at = 0;
    for (const int32_t token : tokens_of(text)) {
      if (!matcher.accept(token)) return at;
      at += token < 256 ? 1 : kControl[static_cast<size_t>(token - kFirstControl)].size();
    }
    return matcher.may_end() ? std::string::npos : at;
  }
  void expect_fits(std::string_view text) { EXPECT_EQ(fitting(text), std::string::npos) << text; }
  // The text fits up to and without the part after the mark '@'.
  void expect_ends_at(std::string text) {
    const size_t mark = text.rfind('@');
    text.erase(mark, 1);
    EXPECT_EQ(fitting(text), mark) << text;
  }
  Grammar& grammar() { return grammar_; }

  std::vector<std::string> relaxed;

 private:
  Grammar grammar_;
};

TEST(CallRules, ArgumentsInJsonFitTheSchemaInEveryFormat) {
  struct Case {
    Format format;
    const char* before;  // a call of weather, up to its arguments
    const char* after;
    const char* other;  // a call of now
  };
  const Case cases[] = {
      {Format::hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": ", "}\n</tool_call>",
       "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
      {Format::mistral_list, "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": ", "}]",
       "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}, \"id\": \"123456789\"}]"},
      {Format::mistral_named, "[TOOL_CALLS]weather[ARGS]", "", "[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}"},
      {Format::granite_list, "<|tool_call|>[{\"name\": \"weather\", \"arguments\": ", "}]",
       "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>"},
      {Format::harmony, "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>", "",
       "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}"},
      {Format::deepseek_json, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n",
       "\n```<｜tool▁call▁end｜>",
       "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"},
      {Format::deepseek_named, "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
       "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"},
      {Format::llama_json, "{\"name\": \"weather\", \"parameters\": ", "}",
       "; {\"name\": \"now\", \"parameters\": {}}"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(spec_of(one.format).name);
    Answers answers(form_of(one.format));
    EXPECT_TRUE(answers.relaxed.empty());
    const std::string good = fmt::format("{}{{\"place\": \"sea\", \"days\": 3}}{}", one.before, one.after);
    answers.expect_fits(good);
    answers.expect_fits(good + one.other);
    answers.expect_ends_at(fmt::format("{}{{\"place\": \"@air", one.before));
    answers.expect_ends_at(fmt::format("{}{{\"place\": \"sea\", \"days\": @0", one.before));
    answers.expect_ends_at(fmt::format("{}{{@}}", one.before));
    answers.expect_ends_at(fmt::format("{}@[", one.before));
    // The reader finds the same.
    Parser parser(one.format, tools());
    std::string arguments;
    for (const Event& event : parser.push(good)) {
      if (event.kind == EventKind::call) {
        EXPECT_EQ(event.text, "weather");
      }
      if (event.kind == EventKind::arguments) arguments += event.text;
    }
    EXPECT_EQ(arguments, "{\"place\": \"sea\", \"days\": 3}");

    CallForm single = form_of(one.format);
    single.parallel = false;
    Answers once(single);
    once.expect_fits(good);
    EXPECT_LT(once.fitting(good + one.other), good.size() + std::string_view(one.other).size()) << "parallel";
  }
}

TEST(CallRules, TagsHaveTheToolsArgumentsAndValuesThatAreNoTextFit) {
  Answers qwen(form_of(Format::qwen_tags));
  const std::string head = "Hm.\n<tool_call>\n<function=weather>\n<parameter=place>\n";
  qwen.expect_fits(head +
                   "sea\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=note>\nfree </text>\n"
                   "</parameter>\n</function>\n</tool_call>\nDone.");
  qwen.expect_ends_at(head + "@air");
  qwen.expect_ends_at(head + "sea\n</parameter>\n<parameter=days>\n@0");
  qwen.expect_ends_at(head + "sea\n</parameter>\n<parameter=@x");
  qwen.expect_ends_at("<tool_call>\n<function=weather>\n<@/function>");
  qwen.expect_ends_at("<tool_call>\n<function=@x");

  Answers glm(form_of(Format::glm_tags));
  glm.expect_fits("<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>sea</arg_value>\n</tool_call>");
  glm.expect_ends_at("<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>@b");
  Answers minimax(form_of(Format::minimax_tags));
  minimax.expect_fits(
      "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"weather\">\n<parameter "
      "name=\"place\">land</parameter>\n</invoke>\n</minimax:tool_call>");
  Answers seed(form_of(Format::seed_tags));
  seed.expect_fits("<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>");
}

TEST(CallRules, LiteralsHaveTheToolsArgumentsAndChoices) {
  for (const Format format : {Format::llama_pythonic, Format::lfm_pythonic}) {
    const std::string_view open = spec_of(format).open;
    const std::string_view close = spec_of(format).close;
    Answers python(form_of(format));
    python.expect_fits(fmt::format("{}[weather(place='sea', days=3, note=\"a\\\"b\"), now()]{}", open, close));
    python.expect_ends_at(fmt::format("{}[weather(place=\"@air", open));
    python.expect_ends_at(fmt::format("{}[weather(place='sea', days=@0", open));
    python.expect_ends_at(fmt::format("{}[weather(@)", open));
  }
  Answers gemma(form_of(Format::gemma));
  gemma.expect_fits("<|tool_call>call:weather{place:<|\"|>sea<|\"|>,note:<|\"|>a, b}<|\"|>}<tool_call|> Done.");
  gemma.expect_ends_at("<|tool_call>call:weather{place:<|\"|>@b");
  Answers small(form_of(Format::function_gemma));
  small.expect_fits("<start_function_call>call:now{}<end_function_call>");
}

TEST(CallRules, EverythingElseIsFree) {
  Answers answers(form_of(Format::hermes));
  for (const char* text : {"", "Plain.", "<tool", "<<tool_cal l>", "{\"name\": \"x\"}", "\xF0\x9F", "a <|other|> b",
                           "</tool_call> <tool_ca", "<|start|><|end|>"}) {
    answers.expect_fits(text);
  }
  Answers llama(form_of(Format::llama_json));
  for (const char* text : {"{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"weather map\"}", "See {\"name\": \"now\"oh",
                           " [1]", "{\"city\": 1}"}) {
    llama.expect_fits(text);
  }
  Answers harmony(form_of(Format::harmony));
  harmony.expect_fits(
      "<|channel|>analysis<|message|>I write to=functions.nobody<|end|><|start|>assistant<|channel|>final"
      "<|message|>Done.");
  harmony.expect_ends_at("<|channel|>commentary to=functions.n@e");
}

TEST(CallRules, AllTokensMayComeInFreeTextButThoseThatBeginACallWrongly) {
  Answers answers(form_of(Format::hermes));
  Matcher matcher(answers.grammar());
  (void)matcher.mask();
  EXPECT_TRUE(matcher.found_all());
  for (const char c : std::string_view("So <tool")) ASSERT_TRUE(matcher.accept(c));
  const std::vector<uint32_t> mask(matcher.mask().begin(), matcher.mask().end());
  EXPECT_FALSE(matcher.found_all());
  const auto allowed = [&](int32_t token) { return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0; };
  EXPECT_TRUE(allowed(kFits));
  EXPECT_FALSE(allowed(kDoesNot));
  for (int32_t token = 0; token < 256; ++token) EXPECT_TRUE(allowed(token));
  for (int32_t token = 0; token < answers.grammar().trie().vocabulary(); ++token) {
    const bool fits = matcher.accept(token);
    EXPECT_EQ(fits, allowed(token)) << token;
    if (fits) matcher.rollback(1);
  }
}

TEST(CallRules, NothingInTheThinkingIsACall) {
  CallForm form = form_of(Format::hermes);
  form.thinking = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
  Answers answers(form);
  answers.expect_fits("\n<think>a <tool_call> then</think>Yes");
  answers.expect_fits("[THINK]a <tool_call>[/THINK]\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>");
  answers.expect_ends_at("<think></think><tool_call>@o");
  answers.expect_ends_at("<thin <tool_call>@o");
  answers.expect_ends_at(" <tool_call>@o");
  form.begins_in = 0;
  Answers inside(form);
  inside.expect_fits("a <tool_call> then");
  inside.expect_ends_at("a <tool_call> then</think><tool_call>@o");
  inside.expect_fits("</thin[/THINK]<tool_call>o");
}

TEST(CallRules, ARequiredAnswerIsOneCallAlone) {
  for (const Format format : {Format::hermes, Format::mistral_named, Format::harmony, Format::deepseek_named,
                              Format::llama_json, Format::mistral_list}) {
    SCOPED_TRACE(spec_of(format).name);
    EXPECT_EQ(required_format(format), format);
    CallForm form = form_of(format);
    form.required = true;
    Answers any(form);
    EXPECT_EQ(any.fitting(""), 0U) << "an end";
    EXPECT_EQ(any.fitting("Hm"), 0U);
    form.name = "now";
    Answers named(form);
    EXPECT_EQ(named.fitting("Hm"), 0U);
  }
  CallForm form = form_of(Format::hermes);
  form.required = true;
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  Answers(form).expect_fits(call);
  // A model that knows nothing of tools would call them until its limit.
  EXPECT_EQ(Answers(form).fitting(call + "\n" + call), call.size());
  form.name = "weather";
  Answers(form).expect_ends_at("<tool_call>\n{\"name\": \"@now");
  form.name = "now";
  Answers(form).expect_fits(call);
  EXPECT_EQ(Answers(form).fitting(call + "\n" + call), call.size());
  EXPECT_EQ(required_format(Format::qwen_tags), Format::llama_json);
  EXPECT_EQ(required_format(Format::gemma), Format::llama_json);
}

TEST(CallRules, ASchemaThatCannotBeEnforcedIsAnErrorWhereItMustBe) {
  const auto strange = nlohmann::ordered_json::parse(R"({"properties":{"a":{"type":"array","uniqueItems":true}}})");
  CallForm form{.format = Format::hermes,
                .tools = std::make_shared<const ToolList>(ToolList{{.name = "f", .parameters = strange}})};
  Answers lax(form);
  ASSERT_EQ(lax.relaxed.size(), 1U);
  EXPECT_NE(lax.relaxed[0].find("uniqueItems"), std::string::npos) << lax.relaxed[0];
  lax.expect_fits("<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1}}</tool_call>");
  lax.expect_ends_at("<tool_call>{\"name\": \"f\", \"arguments\": @3");
  form.required = true;
  EXPECT_THROW(Answers{form}, Error);
  form.required = false;
  form.tools = std::make_shared<const ToolList>(ToolList{{.name = "f", .parameters = strange, .strict = true}});
  EXPECT_THROW(Answers{form}, Error);
}

}  // namespace
}  // namespace inferno::calls
