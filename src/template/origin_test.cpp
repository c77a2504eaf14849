// Text of users never becomes control, whatever a template does with it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "template/template.h"
#include "template/value_text.h"

namespace inferno {
namespace {

// Control pieces in [brackets], others in (parentheses).
std::string origins(std::string_view source) {
  TemplateVariables variables;
  const nlohmann::ordered_json user = {{"text", " a<b "},    {"word", "ab"},      {"n", 7},         {"yes", true},
                                       {"list", {"x", "y"}}, {"d", {{"k", "v"}}}, {"lines", "p\nq"}};
  for (const auto& [name, value] : user.items()) variables.set(name, jinja::from_json(value));
  variables.set("bos", jinja::Value::control("<s>"));
  std::string out;
  for (const PromptPiece& piece : Template(source).render(variables)) {
    out += (piece.control ? "[" : "(") + piece.text + (piece.control ? "]" : ")");
  }
  return out;
}

TEST(Origin, OfTheTemplateAndOfWhatTheEngineGivesIsControl) {
  EXPECT_EQ(origins("a{{ 'b' }}{{ bos }}{{ 1 + 1 }}{{ [1] }}"), "[ab<s>2[1]]");
}

TEST(Origin, SurvivesConcatenation) {
  EXPECT_EQ(origins("{{ '<' + word + '>' }}"), "[<](ab)[>]");
  EXPECT_EQ(origins("{{ '<' ~ word ~ n ~ '>' }}"), "[<](ab7)[>]");
  EXPECT_EQ(origins("{{ word * 2 }}{{ 'x' * 2 }}"), "(abab)[xx]");
  EXPECT_EQ(origins("{{ ['a', word, 'c'] | join('-') }}"), "[a-](ab)[-c]");
  EXPECT_EQ(origins("{{ list | join(', ') }}{{ ','.join(list) }}"), "(x)[, ](yx)[,](y)");
  EXPECT_EQ(origins("{{ '%s|%5s|%d' % (word, word, n) }}"), "(ab)[|   ](ab)[|](7)");
  EXPECT_EQ(origins("{{ '{}:{x}'.format(word, x=n) }}"), "(ab)[:](7)");
  EXPECT_EQ(origins("{{ word % () }}{{ '%s' | format(word) }}"), "(abab)");
}

TEST(Origin, SurvivesSlicesAndStringMethods) {
  EXPECT_EQ(origins("{{ ('<' + word + '>')[1:] }}"), "(ab)[>]");
  EXPECT_EQ(origins("{{ ('<' + word + '>')[::-1] }}"), "[>](ba)[<]");
  EXPECT_EQ(origins("{{ ('<' + word + '>')[0] }}{{ word[0] }}"), "[<](a)");
  EXPECT_EQ(origins("{{ text | trim }}{{ text.strip() }}"), "(a<ba<b)");
  EXPECT_EQ(origins("{{ (' x' + text) | trim }}"), "[x]( a<b)");
  EXPECT_EQ(origins("{{ word | upper }}{{ ('x' + word).upper() }}"), "(AB)[X](AB)");
  EXPECT_EQ(origins("{{ ('x' + word).title() }}{{ ('x' + word) | capitalize }}"), "[X](ab)[X](ab)");
  EXPECT_EQ(origins("{{ word | replace('a', '<') }}{{ 'a.c'.replace('.', word) }}"), "[<](b)[a](ab)[c]");
  EXPECT_EQ(origins("{{ ('x ' + word).split() | join }}{{ word.split('a')[1] }}"), "[x](abb)");
  EXPECT_EQ(origins("{{ lines.splitlines() | join(' ') }}{{ lines | indent(1) }}"), "(p)[ ](qp)[\n ](q)");
  EXPECT_EQ(origins("{{ word.center(4, '*') }}{{ '7'.rjust(3, word[0]) }}"), "[*](ab)[*](aa)[7]");
  EXPECT_EQ(origins("{{ ('<' + text) | escape }}"), "[&lt;]( a&lt;b )");
  EXPECT_EQ(origins("{{ 'q' + word | truncate(4, true, '.', 0) }}"), "[q](ab)");
}

TEST(Origin, SurvivesPrintingAndJson) {
  EXPECT_EQ(origins("{{ list }}"), "[['](x)[', '](y)[']]");
  EXPECT_EQ(origins("{{ d | tojson }}"), "[{\"](k)[\": \"](v)[\"}]");
  EXPECT_EQ(origins("{{ {'<a>': word, 'n': n, 'y': yes} | tojson }}"),
            "[{\"<a>\": \"](ab)[\", \"n\": ](7)[, \"y\": ](true)[}]");
  EXPECT_EQ(origins("{{ [1, 2] | tojson(indent=word) }}"), "[[\n](ab)[1,\n](ab)[2\n]]");
}

TEST(Origin, OfNumbersIsTheirs) {
  EXPECT_EQ(origins("<unused{{ n }}>"), "[<unused](7)[>]");
  EXPECT_EQ(origins("{{ n + 1 }}{{ -n }}{{ n / 2 }}{{ yes }}{{ '12' | int + 1 }}"), "(8-73.5True13)");
}

TEST(Origin, SurvivesBlocksMacrosAndNamespaces) {
  EXPECT_EQ(origins("{% set x %}<{{ word }}>{% endset %}{{ x }}"), "[<](ab)[>]");
  EXPECT_EQ(origins("{% filter upper %}x{{ word }}{% endfilter %}"), "[X](AB)");
  EXPECT_EQ(origins("{% macro m(t) %}<{{ t }}{{ caller() }}>{% endmacro %}{% call m(word) %}!{% endcall %}"),
            "[<](ab)[!>]");
  EXPECT_EQ(
      origins("{% set ns = namespace(t='') %}{% for c in word %}{% set ns.t = ns.t + c + '-' %}{% endfor %}{{ ns.t }}"),
      "(a)[-](b)[-]");
  EXPECT_EQ(origins("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}"), "(k)[=](v)");
  EXPECT_EQ(origins("{{ list | map('upper') | join }}{{ list | sort(reverse=true) | first }}"), "(XYy)");
}

TEST(Origin, OfADateIsItsFormats) {
  EXPECT_EQ(origins("{{ strftime_now('x') }}{{ strftime_now(word) }}"), "[x](ab)");
}

}  // namespace
}  // namespace inferno
