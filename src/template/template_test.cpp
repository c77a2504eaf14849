#include "template/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "inferno/error.h"
#include "template/known_templates.h"
#include "template/value_text.h"

namespace inferno {
namespace {

std::string text_of(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

std::string error_of(const std::string& source) {
  try {
    (void)Template(source).render({});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Template, ErrorsNameTheLineAndWhatIsWrong) {
  EXPECT_EQ(error_of("a\n{% if x %}"), "chat template, line 2: {% elif %} is missing");
  EXPECT_EQ(error_of("a\n\n{{ x | nope }}"), "chat template, line 3: there is no filter named 'nope'");
  EXPECT_EQ(error_of("{{ 1 }}\n{{ x.y }}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(error_of("{{ raise_exception('No\ntools') }}"),
            "chat template, line 1: the template refuses: No\\x0atools");
  EXPECT_EQ(error_of("{% include 'x' %}"), "chat template, line 1: {% include %} is not supported in chat templates");
}

TEST(Template, NeighboursOfOneKindAreOnePiece) {
  TemplateVariables variables;
  variables.set("a", jinja::Value::user("u"));
  const std::vector<PromptPiece> pieces = Template("x{{ 'y' }}{{ a }}{{ a }}z").render(variables);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].text, "xy");
  EXPECT_EQ(pieces[1].text, "uu");
  EXPECT_TRUE(Template("").render({}).empty());
}

TEST(Template, TheLastValueOfANameCounts) {
  TemplateVariables variables;
  variables.set("a", jinja::Value::user("1"));
  variables.set("a", jinja::Value::control("2"));
  EXPECT_EQ(text_of(Template("{{ a }}").render(variables)), "2");
}

TEST(Template, KnowsWhichVariablesItUses) {
  const Template chat("{% if enable_thinking %}{{ messages }}{% endif %}");
  EXPECT_TRUE(chat.uses("enable_thinking"));
  EXPECT_FALSE(chat.uses("thinking"));
}

TEST(Template, OneTemplateIsRenderedByManyThreads) {
  const Template chat(
      "{% set ns = namespace(n=0) %}{% for m in l %}{% set ns.n = ns.n + m %}{{ m ~ '<' }}{% endfor %}{{ ns.n }}");
  const jinja::Value list = jinja::from_json({1, 2, 3});
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        TemplateVariables variables;
        variables.set("l", list);
        text = text_of(chat.render(variables));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "1<2<3<6");
}

TEST(Template, TextThatIsNotUtf8IsKept) {
  TemplateVariables variables;
  variables.set("a", jinja::Value::user("\xff"
                                        "a\xc3"));
  EXPECT_EQ(
      text_of(Template("{{ a }}{{ a | length }}{{ a[0] }}{{ a[::-1] | upper }}{{ a | tojson }}").render(variables)),
      "\xff"
      "a\xc3"
      "3\xff\xc3"
      "A\xff\"\xff"
      "a\xc3\"");
}

TEST(Template, JsonThatIsNestedTooDeepIsAnError) {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 300; ++i) deep = nlohmann::ordered_json::array({deep});
  EXPECT_THROW((void)jinja::from_json(deep), Error);
}

TEST(Template, KnownNamesCompile) {
  EXPECT_FALSE(find_known_template("chatml").empty());
  EXPECT_TRUE(find_known_template("nope").empty());
  EXPECT_EQ(nearest_known_template("chatlm"), "chatml");
  const std::string names = known_template_names() + ", ";
  for (size_t at = 0; at < names.size(); at = names.find(',', at) + 2) {
    const std::string name = names.substr(at, names.find(',', at) - at);
    EXPECT_NO_THROW(Template{find_known_template(name)}) << name;
  }
}

}  // namespace
}  // namespace inferno
