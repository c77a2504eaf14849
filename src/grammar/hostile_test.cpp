// Sources that are too large, too deep, impossible or made to explode: an Error of one line, by limits alone.
#include <gtest/gtest.h>

#include "grammar/test_grammar.h"

namespace inferno::grammar {
namespace {

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

void expect_error(SourceKind kind, const std::string& text) {
  const std::string error = error_of(kind, text);
  EXPECT_FALSE(error.empty()) << text.substr(0, 200);
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(Hostile, SchemasThatAreTooLargeOrDeepAreErrors) {
  expect_error(SourceKind::json_schema, R"({"enum":[)" + repeated("1,", 1'000'000) + "1]}");
  expect_error(SourceKind::json_schema, repeated(R"({"items":)", 10'000) + "{}" + repeated("}", 10'000));
  expect_error(SourceKind::json_schema, repeated("[", 100'000));
  expect_error(SourceKind::json_schema, R"({"minLength":1000000000})");
  expect_error(SourceKind::json_schema, R"({"minItems":1000000000})");
  expect_error(SourceKind::json_schema, R"({"minProperties":1000000000})");
  expect_error(SourceKind::json_schema, R"({"type":"number","multipleOf":123456789012345})");
  expect_error(SourceKind::json_schema, "");
  expect_error(SourceKind::json_schema, "[]");
  expect_error(SourceKind::json_schema, R"({"type":5})");
  expect_error(SourceKind::json_schema, R"({"properties":{"a":5}})");
}

TEST(Hostile, AnObjectOfTooManyMembersIsAnErrorBeforeItsTreeIsBuilt) {
  std::string properties;
  for (int i = 0; i < 90'000; ++i) properties += std::string(i > 0 ? "," : "") + "\"p" + std::to_string(i) + "\":{}";
  EXPECT_EQ(error_of(SourceKind::json_schema, R"({"properties":{)" + properties + "}}"),
            "the JSON schema has an object with more than 10000 members");
}

TEST(Hostile, WhatIsTooLargeInASchemaIsNamedWithItsPlace) {
  const auto expect_place = [](const std::string& schema, const std::string& keyword, const std::string& where) {
    const std::string error = error_of(SourceKind::json_schema, schema);
    EXPECT_TRUE(error.starts_with("the JSON schema: `" + keyword + "` at " + where + " ")) << error;
  };
  const auto in_property = [](const std::string& schema) { return R"({"properties":{"p":)" + schema + "}}"; };
  expect_place(in_property(R"({"type":"string","pattern":"^(a|b)*a(a|b){40}$"})"), "pattern", "#/properties/p");
  expect_place(in_property(R"({"type":"string","pattern":"a(^b)+"})"), "pattern", "#/properties/p");
  expect_place(in_property(R"({"type":"string","minLength":1000000000})"), "minLength", "#/properties/p");
  expect_place(in_property(R"({"type":"array","minItems":1000000000})"), "minItems", "#/properties/p");
  expect_place(in_property(R"({"type":"object","minProperties":1000000000})"), "minProperties", "#/properties/p");
  expect_place(in_property(R"({"type":"number","multipleOf":123456789012345})"), "multipleOf", "#/properties/p");
  expect_place(in_property(R"({"type":"object","patternProperties":{"^(a|b)*a(a|b){40}$":{}}})"), "patternProperties",
               "#/properties/p");
  std::string all;
  for (int i = 0; i < 40; ++i) all += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":1},{"maxLength":9}]})";
  expect_place(R"({"allOf":[)" + all + "]}", "anyOf", "#/allOf/0");
}

TEST(Hostile, ReferencesThatMultiplyAreErrors) {
  std::string defs = R"("a0":{"type":"null"})";
  for (int i = 1; i < 40; ++i) {
    const std::string ref = R"({"$ref":"#/$defs/a)" + std::to_string(i - 1) + "\"}";
    defs += ",\"a" + std::to_string(i) + R"(":{"anyOf":[)" + ref + "," + ref + "]}";
  }
  expect_error(SourceKind::json_schema, R"({"$defs":{)" + defs + R"(},"$ref":"#/$defs/a39"})");
  std::string all;
  for (int i = 0; i < 40; ++i) all += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":1},{"maxLength":9}]})";
  expect_error(SourceKind::json_schema, R"({"allOf":[)" + all + "]}");
}

TEST(Hostile, SharedReferencesThatDoNotMultiplyAreFine) {
  std::string defs = R"("a0":{"type":"null"})";
  for (int i = 1; i < 60; ++i) {
    const std::string ref = R"({"$ref":"#/$defs/a)" + std::to_string(i - 1) + "\"}";
    defs += ",\"a" + std::to_string(i) + R"(":{"type":"object","properties":{"l":)" + ref + R"(,"r":)" + ref + "}}";
  }
  EXPECT_TRUE(schema_takes(R"({"$defs":{)" + defs + R"(},"$ref":"#/$defs/a59"})", "{}"));
}

TEST(Hostile, WhatNothingFitsIsAnError) {
  for (const char* schema :
       {"false", R"({"enum":[]})", R"({"type":"integer","minimum":5,"maximum":4})", R"({"type":[]})",
        R"({"type":"string","minLength":3,"maxLength":2})", R"({"allOf":[{"type":"null"},{"type":"integer"}]})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"string","pattern":"^a$","const":"b"})", R"({"type":"array","items":false,"minItems":1})",
        R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"}) {
    EXPECT_NE(error_of(SourceKind::json_schema, schema).find("no text fits"), std::string::npos)
        << schema << ": " << error_of(SourceKind::json_schema, schema);
  }
}

TEST(Hostile, PatternsThatExplodeAreErrorsOrFine) {
  // Backtracking would take forever; there is none here.
  EXPECT_TRUE(regex_takes("(a+)+b", std::string(2000, 'a') + "b"));
  EXPECT_FALSE(regex_takes("(a|a)*b", std::string(2000, 'a')));
  EXPECT_TRUE(regex_takes("(a?){200}a{200}", std::string(250, 'a')));
  // 2^24 states when made deterministic: it stays nondeterministic.
  EXPECT_TRUE(regex_takes("(a|b)*a(a|b){24}", "ba" + std::string(24, 'b')));
  expect_error(SourceKind::regex, "((a{1000}){1000}){1000}");
  expect_error(SourceKind::regex, "(((a{0,1000}){0,1000}){0,1000})");
  expect_error(SourceKind::regex, "a{99999999999}");
  expect_error(SourceKind::regex, repeated("(", 100'000) + repeated(")", 100'000));
  expect_error(SourceKind::regex, repeated("(^a|b)", 64));
  EXPECT_TRUE(regex_takes("((){1000000}){1000000}a", "a"));
  expect_error(SourceKind::json_schema, R"({"type":"string","pattern":"^(a|b)*a(a|b){40}$"})");
}

TEST(Hostile, GrammarsThatAreTooLargeOrDeepAreErrors) {
  expect_error(SourceKind::gbnf, "root ::= " + repeated("(", 100'000) + "\"a\"" + repeated(")", 100'000));
  expect_error(SourceKind::gbnf, "root ::= " + repeated("\"a\" ", 2'000'000));
  expect_error(SourceKind::gbnf, "root ::= \"a\"{1000000}{1000000}");
  expect_error(SourceKind::gbnf, "root ::= root");
  const auto chain = [](int rules) {
    std::string source = "root ::= r0\n";
    for (int i = 0; i < rules; ++i) source += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
    return source + "r" + std::to_string(rules) + " ::= \"a\"?\n";
  };
  EXPECT_TRUE(gbnf_takes(chain(1000), "a"));
  expect_error(SourceKind::gbnf, chain(20'000));
}

TEST(Hostile, TextsNestAsDeepAsTheStackAndNotDeeper) {
  Grammar grammar = make_grammar({.kind = SourceKind::gbnf, .text = "root ::= \"[\" root? \"]\" ", .choices = {}}, {},
                                 {.stack_depth = 50});
  Matcher matcher(grammar);
  size_t depth = 0;
  while (depth < 1000 && matcher.accept('[')) ++depth;
  EXPECT_GE(depth, 50U);
  EXPECT_LT(depth, 60U);
  for (size_t i = 0; i < depth; ++i) EXPECT_TRUE(matcher.accept(']'));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Hostile, TooManyWaysToReadATextEndWithAnError) {
  Grammar grammar = make_grammar(
      {.kind = SourceKind::gbnf, .text = "root ::= (\"a\" root | \"a\" root \"b\" | \"a\" root \"c\")?", .choices = {}},
      {}, {.parallel_states = 100});
  Matcher matcher(grammar);
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) (void)matcher.accept('a');
      },
      Error);
}

}  // namespace
}  // namespace inferno::grammar
