// Templates that do not end, or grow, end with an Error of one line.
#include <gtest/gtest.h>

#include <string>

#include "inferno/error.h"
#include "template/template.h"

namespace inferno {
namespace {

constexpr TemplateLimits kSmall = {.steps = 200'000, .bytes = 1 << 20, .output = 1 << 16, .depth = 200};

std::string error_within_limits(const std::string& source) {
  try {
    (void)Template(source).render({}, kSmall);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

void expect_error(const std::string& source, const std::string& part) {
  EXPECT_NE(error_within_limits(source).find(part), std::string::npos) << source << ": " << error_within_limits(source);
}

TEST(Limits, LoopsThatDoNotEndStop) {
  expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "bytes");
  expect_error(
      "{% set r = range(1000) %}{% for a in r %}{% for b in r %}{% if a == b %}{% endif %}{% endfor %}{% endfor %}",
      "steps");
  expect_error(
      "{% set s = 'ab' * 1000 %}{% set r = range(9999) %}{% for i in r %}{% if s == s ~ 'x' %}{% endif %}{% endfor %}",
      "bytes");
}

TEST(Limits, TextThatGrowsStops) {
  expect_error("{{ 'a' * 1000000000 }}", "bytes");
  expect_error("{{ [1] * 1000000000 }}", "bytes");
  expect_error("{{ '%999999999d' % 5 }}", "bytes");
  expect_error("{{ '{:999999999}'.format(5) }}", "bytes");
  expect_error("{{ 'a'.center(999999999) }}", "bytes");
  expect_error("{{ 'a\tb'.expandtabs(999999999) }}", "bytes");
  expect_error("{{ 'a' | indent(999999999) }}", "bytes");
  expect_error("{{ [1] | tojson(indent=999999999) }}", "bytes");
  expect_error("{{ [1] | batch(999999999, 0) | list }}", "bytes");
  expect_error("{% set ns = namespace(t='ab') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
               "bytes");
  expect_error(
      "{% set ns = namespace(t='ab') %}{% for i in range(99) %}{% set ns.t = ns.t.replace('a', ns.t) %}{% endfor %}",
      "bytes");
  expect_error("{% for i in range(9999) %}0123456789{% endfor %}", "writes more than");
  expect_error("{{ range(999999999999) }}", "range");
}

TEST(Limits, RecursionStops) {
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested");
  expect_error("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested");
  expect_error("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested");
  std::string chain = "{{ x";
  for (int i = 0; i < 5000; ++i) chain += "|string";
  expect_error(chain + " }}", "nested");
  expect_error("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested");
  expect_error("{{ " + std::string(5000, '-') + "1 }}", "nested");
  expect_error("{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}", "nested");
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  expect_error(blocks, "nested");
}

TEST(Limits, ValuesThatHoldThemselvesManyTimesStop) {
  const std::string doubled =
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  expect_error(doubled, "elements");
  const std::string thirty =
      "{% set ns = namespace(x=[1]) %}{% for i in range(22) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  expect_error(thirty + "{{ ns.x == [ns.x] }}{{ ns.x == ns.x }}", "steps");
  expect_error(thirty + "{{ ns.x | tojson }}", "steps");
  expect_error("{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}", "deep");
}

TEST(Limits, AnAttributeReachesNothingOutsideTheValues) {
  for (const char* source : {"{{ ''.__class__.__mro__ }}", "{{ namespace.__init__.__globals__ }}", "{{ [].append(1) }}",
                             "{{ {}.update(a=1) }}", "{{ cycler.__init__.__globals__.os }}",
                             "{{ (1).__class__.__base__ }}", "{{ '{0.__class__.x}'.format(1) }}"}) {
    EXPECT_NE(error_within_limits(source), "") << source;
  }
}

}  // namespace
}  // namespace inferno
