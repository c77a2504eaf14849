// JSON schemas: which texts fit, keyword by keyword, and what is refused by keyword and path.
#include <gtest/gtest.h>

#include "grammar/test_grammar.h"

namespace inferno::grammar {
namespace {

// Texts that fit a schema and texts that do not.
void expect(const std::string& schema, const std::vector<std::string>& fit, const std::vector<std::string>& do_not) {
  SCOPED_TRACE(schema);
  Grammar grammar = make_grammar({.kind = SourceKind::json_schema, .text = schema, .choices = {}});
  for (const std::string& text : fit) EXPECT_TRUE(takes(grammar, text)) << text;
  for (const std::string& text : do_not) EXPECT_FALSE(takes(grammar, text)) << text;
}

void expect_refused(const std::string& schema, const std::string& keyword, const std::string& path) {
  const std::string error = error_of(SourceKind::json_schema, schema);
  EXPECT_NE(error.find("`" + keyword + "`"), std::string::npos) << schema << ": " << error;
  EXPECT_NE(error.find(path), std::string::npos) << schema << ": " << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(JsonSchema, TypesAreTheirTexts) {
  expect(R"({"type":"string"})", {R"("a")", R"("\u00e9\n")", R"("\ud83d\ude00")", "\"\xC3\xA9\"", R"("")"},
         {"a", R"("a)", R"("\x")", R"("\ud83d")", "\"\n\"", "1"});
  expect(R"({"type":"integer"})", {"0", "-5", "120"}, {"01", "1.5", "-", "+1", "1e3"});
  expect(R"({"type":"number"})", {"0", "-5.25", "1e10", "1.5E-3"}, {"01", ".5", "1.", "1e"});
  expect(R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"True", "0", "nul"});
  expect("{}", {"1", R"([1,{"a":[]}])", R"({"a" : null , "b":[ ]})", "true"}, {"{", "[1,]", R"({"a"})"});
  expect("true", {"1"}, {""});
  expect(R"({"type":"object"})", {"{}", R"({ "x": [1, 2] })"}, {"[]", "{} "});
}

TEST(JsonSchema, SpaceIsOneSpaceOrOneLine) {
  expect(R"({"type":"array"})", {"[1, 2]", "[\n  1,\n  2\n]", "[\r\n\t1]", "[ ]"}, {"[  ]", "[\n\n]", " []", "[] "});
}

TEST(JsonSchema, ValuesAreListed) {
  expect(R"({"enum":["a","ab",1,null,{"x":[1]}]})", {R"("a")", R"("ab")", "1", "null", R"({"x":[1]})"},
         {R"("b")", "11", R"("abc")"});
  // Numbers that are equal are the same value.
  expect(R"({"enum":[2.0,-7,0.5]})", {"2", "2.0", "-7", "-7.0", "0.5"}, {"2.", "2.1", "20", "0.50", "7"});
  expect(R"({"const":{"a":[1,2.0],"b":"1"}})", {R"({"a":[1,2],"b":"1"})", R"({"a":[1.0,2.0],"b":"1"})"},
         {R"({"a":[1,2.5],"b":"1"})", R"({"a":[1,2],"b":"1.0"})"});
  expect(R"({"const":[1,2,3,4,5]})", {"[1,2,3,4,5]"}, {"[1,2,3,4,5.0]"});
  expect(R"({"type":"integer","enum":[1,3.0]})", {"1", "3", "3.0"}, {"1.0"});
  expect(R"({"const":1e30})", {"1e+30"}, {"1"});
  expect(R"({"const":"a\"b"})", {R"("a\"b")"}, {R"("a")"});
  expect(R"({"type":"string","enum":["a",1],"minLength":1})", {R"("a")"}, {"1"});
  expect(R"({"type":"integer","enum":[1,2,3],"minimum":2})", {"2", "3"}, {"1"});
}

TEST(JsonSchema, NumbersKeepTheirBounds) {
  expect(R"({"type":"integer","minimum":-3,"maximum":120})", {"-3", "-1", "0", "9", "10", "99", "119", "120"},
         {"-4", "121", "-10", "1000", "1.0"});
  expect(R"({"type":"integer","exclusiveMinimum":7,"exclusiveMaximum":10})", {"8", "9"}, {"7", "10", "70"});
  expect(R"({"type":"integer","minimum":1.5})", {"2", "100"}, {"1", "0", "-2"});
  expect(R"({"type":"number","minimum":0.25,"maximum":1.5})",
         {"0.25", "0.250", "0.3", "1", "1.0", "1.49", "1.5", "1.500"}, {"0.2", "0", "1.51", "2", "-1", "0.249", "1e0"});
  expect(R"({"type":"number","exclusiveMinimum":0})", {"0.001", "1", "10.5"}, {"0", "0.0", "-1", "-0"});
  expect(R"({"type":"number","exclusiveMaximum":0})", {"-0.1", "-12"}, {"0", "-0", "-0.0", "1"});
  expect(R"({"type":"number","maximum":-2.5})", {"-2.5", "-3", "-10"}, {"-2.4", "0", "-2", "2.5"});
  expect(R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "8", "71"});
  expect(R"({"type":"number","multipleOf":0.25})", {"0.25", "1", "1.5", "2.50", "-0.75"}, {"0.1", "1.51"});
  expect(R"({"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3})", {"2", "3"}, {"1"});  // draft 4
}

TEST(JsonSchema, NumbersWithAnExponentKeepTheirBounds) {
  expect(R"({"type":"number","minimum":0})", {"1e-06", "2.5E+7", "1e0", "9.99e99"},
         {"-1e-6", "0e5", "10e5", "1e100", "1e", "1.e5", "01e5"});
  expect(R"({"type":"number","exclusiveMinimum":0,"maximum":1})", {"5e-05", "9.99e-1", "1e-99", "1e-1"},
         {"1e0", "1e-0", "1e-00", "1e5", "-1e-5", "5e00"});
  expect(R"({"type":"number","minimum":-20,"maximum":0.05})", {"-1e0", "-9.9e-3", "1e-3", "9.9e-3"},
         {"-1e1", "-1e+1", "1e-2", "1e0"});
  expect(R"({"type":"number","minimum":3,"maximum":2000})", {"1e1", "9.9e02"}, {"1e0", "1e3", "1e-1", "1e12"});
  expect(R"({"type":"number","minimum":0.01})", {"1e-2", "1e20"}, {"1e-3", "1e-22"});
  expect(R"({"type":"number","exclusiveMinimum":0.01})", {"2e-1"}, {"1e-2"});
  expect(R"({"type":"number","maximum":-10})", {"-1e1", "-2e15"}, {"-1e0", "1e1", "-1e-1"});
  expect(R"({"type":"number","exclusiveMaximum":0})", {"-1e1", "-2e-5"}, {"0e1", "-0e1", "1e-5"});
  // Without a power of ten within the bounds there is none; whole numbers and multiples have none.
  expect(R"({"type":"number","minimum":2,"maximum":9})", {"2", "8.5"}, {"2e0", "1e0"});
  expect(R"({"type":"integer","minimum":0})", {"1000"}, {"1e3"});
  expect(R"({"type":"number","minimum":0,"multipleOf":0.5})", {"1.5"}, {"1e3"});
}

TEST(JsonSchema, StringsKeepLengthsPatternsAndFormats) {
  expect(R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", "\"\xC3\xA9\xE2\x82\xAC\"", R"("a\n\u0041")"},
         {R"("a")", R"("abcd")"});
  expect(R"({"type":"string","pattern":"^[a-z]+$"})", {R"("abc")"}, {R"("")", R"("aB")"});
  expect(R"({"type":"string","pattern":"b"})", {R"("abc")", R"("b")", R"("\"b\n")"}, {R"("ac")"});
  expect(R"({"type":"string","pattern":"^a|z$"})", {R"("ab")", R"("yz")"}, {R"("ba")"});
  expect(R"-({"type":"string","pattern":"^(a$|bc$)"})-", {R"("a")", R"("bc")"}, {R"("ab")"});
  expect(R"({"type":"string","pattern":"^\\d+$","maxLength":3})", {R"("123")"}, {R"("1234")", R"("a")"});
  expect(R"({"type":"string","format":"date"})", {R"("2024-02-29")", R"("2026-11-16")"},
         {R"("2023-02-29")", R"("2026-13-01")", R"("2026-1-1")"});
  expect(R"({"type":"string","format":"date-time"})", {R"("2026-11-16T15:43:29Z")", R"("2026-11-16T15:43:29.5+01:00")"},
         {R"("2026-11-16")", R"("2026-11-16T25:00:00Z")"});
  expect(R"({"type":"string","format":"ipv6"})",
         {R"("::1")", R"("2001:db8::ff00:42:8329")", R"("::ffff:1.2.3.4")", R"("::")"},
         {R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7")"});
  expect(R"({"type":"string","format":"uuid"})", {R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")"}, {R"("2eb8aa08")"});
  expect(R"({"type":"string","format":"email"})", {R"("joe.b@example.com")"}, {R"("joe")", R"(".joe@x.com")"});
  expect(R"({"type":"string","format":"uri"})", {R"("http://a.b/c?d=e#f")", R"("urn:x:y")"},
         {R"("//a/b")", R"("a b")"});
}

TEST(JsonSchema, LongStringsAreCountedInBlocks) {
  Grammar grammar = make_grammar({.kind = SourceKind::json_schema,
                                  .text = R"({"type":"string","minLength":1100,"maxLength":5000})",
                                  .choices = {}});
  for (const size_t length : {1099U, 1100U, 1101U, 2500U, 4999U, 5000U, 5001U}) {
    EXPECT_EQ(takes(grammar, '"' + std::string(length, 'x') + '"'), length >= 1100 && length <= 5000) << length;
  }
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},
          "required":["b"],"additionalProperties":false})";
  expect(schema,
         {R"({"b":""})", R"({"a":1,"b":"x"})", R"({ "a" : 1 , "b" : "x", "c": null })", R"({"b":"x","c":null})"},
         {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x",})", R"({"b":"x","b":"y"})"});
  expect(R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
         {"{}", R"({"a":1})", R"({"a":1,"b":true,"aa":false})", R"({"x":true})"},
         {R"({"a":true})", R"({"x":1})", R"({"x":true,"a":1})"});
  expect(R"({"type":"object","properties":{"a":{"type":"integer"}}})", {R"({"a":1,"z":[1]})", R"({"z":"q"})"},
         {R"({"a":"x"})"});
  expect(R"({"type":"object","required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":2})"});
  expect(R"({"type":"object","properties":{"a\"b":{"type":"integer"}},"additionalProperties":false})",
         {R"({"a\"b":1})"}, {R"({"a":1})"});
}

TEST(JsonSchema, ObjectsCountTheirProperties) {
  const std::string some = R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,)";
  expect(some + R"("minProperties":2})", {R"({"a":1,"b":1})", R"({"a":1,"c":1})", R"({"a":1,"b":1,"c":1})"},
         {"{}", R"({"a":1})"});
  expect(some + R"("maxProperties":1})", {"{}", R"({"c":1})"}, {R"({"a":1,"b":1})"});
  expect(R"({"type":"object","minProperties":1,"maxProperties":2})", {R"({"x":1})", R"({"x":1,"y":1})"},
         {"{}", R"({"x":1,"y":1,"z":1})"});
}

TEST(JsonSchema, NamesMayHavePatterns) {
  expect(R"({"type":"object","patternProperties":{"^s_":{"type":"string"},"^i_":{"type":"integer"}},
            "additionalProperties":false})",
         {"{}", R"({"s_a":"x","i_b":1})", R"({"i_b":1,"s_a":"x"})"}, {R"({"s_a":1})", R"({"x":1})"});
  expect(R"({"type":"object","properties":{"s_x":{"maxLength":1}},"patternProperties":{"^s_":{"type":"string"}}})",
         {R"({"s_x":"a","o":1})"}, {R"({"s_x":1})", R"({"s_x":"ab"})", R"({"s_y":1})"});
  expect(R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"}})", {R"({"ab":1})"}, {R"({"A":1})"});
  expect_refused(R"({"type":"object","patternProperties":{"a":{"type":"string"},"b":{"type":"integer"}}})",
                 "patternProperties", "#");
}

TEST(JsonSchema, ArraysCountTheirItems) {
  expect(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2 ,3]"}, {"[,]", R"(["a"])", "[1"});
  expect(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"});
  expect(R"({"type":"array","minItems":1})", {"[1]", "[1,{}]"}, {"[]"});
  expect(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
         {"[]", "[1]", R"([1,"a"])"}, {R"([1,"a",2])", R"(["a"])"});
  expect(R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})", {"[1,null]", "[]"},
         {"[1,1]", "[null]"});
  expect(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, AlternativesAndMerges) {
  expect(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"5", R"("a")"}, {R"("ab")", "null"});
  expect(R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,
            "anyOf":[{"required":["a"]},{"required":["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"});
  expect(R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"});
  expect(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}}}],
            "type":"object"})",
         {R"({"a":1,"b":"x"})"}, {R"({"b":"x"})", R"({"a":1,"b":2})"});
  expect(R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k"]},
                      {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]},{"type":"null"}]})",
         {R"({"k":"a","v":1})", R"({"k":"b","v":"x"})", "null"}, {R"({"k":"c"})", R"({"k":"a","v":"x"})"});
  expect_refused(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf", "#/oneOf");
  expect_refused(R"({"properties":{"a":{"oneOf":[{"minLength":2},{"maxLength":3}]}}})", "oneOf",
                 "#/properties/a/oneOf");
}

TEST(JsonSchema, MergedPropertiesComeInTheOrderInWhichSchemasAreNamed) {
  expect(R"({"$defs":{"late":{"properties":{"p":{"properties":{"b":{}}}}},
                     "early":{"properties":{"p":{"properties":{"a":{}}}}}},
            "allOf":[{"$ref":"#/$defs/early"},{"$ref":"#/$defs/late"}]})",
         {R"({"p":{"a":1,"b":1}})"}, {R"({"p":{"b":1,"a":1}})"});
}

TEST(JsonSchema, ReferencesAndRecursion) {
  expect(R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
            "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],
            "additionalProperties":false}},"$ref":"#/$defs/node"})",
         {R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1,"next":{"v":2}})"});
  expect(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  expect(R"({"$defs":{"a/b":{"type":"null"}},"$ref":"#/$defs/a~1b"})", {"null"}, {"1"});
  expect(R"({"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"})", {"null"}, {"1"});
  expect_refused(R"({"$ref":"#/nowhere"})", "$ref", "#");
  expect_refused(R"({"$ref":"http://elsewhere/x"})", "$ref", "#");
  expect_refused(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "$ref", "#");
}

TEST(JsonSchema, WhatIsNotEnforcedIsNamedWithItsPath) {
  expect_refused(R"({"type":"array","uniqueItems":true})", "uniqueItems", "#");
  expect_refused(R"({"properties":{"a":{"not":{}}}})", "not", "#/properties/a");
  expect_refused(R"({"items":{"if":{},"then":{}}})", "if", "#/items");
  expect_refused(R"({"type":"string","format":"iban"})", "format", "#");
  expect_refused(R"({"requierd":["a"]})", "requierd", "#");
  expect_refused(R"({"type":"text"})", "type", "#");
  expect_refused(R"({"properties":{"a":{"$id":"x","$ref":"#/b"}}})", "$id", "#/properties/a");
  expect_refused(R"-({"properties":{"a":{"pattern":"(?=a)"}}})-", "pattern",
                 "#/properties/a cannot be used: the pattern: look-ahead");
  expect_refused(R"({"$schema":"https://example.org/own","minimum":1})", "$schema", "#");
  expect_refused(R"({"$schema":["http://json-schema.org/draft-07/schema#"]})", "$schema", "#");
  expect(R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"null"})", {"null"}, {"1"});
  // Annotations and words of others are no keywords.
  expect(R"({"title":"t","description":"d","default":1,"examples":[1],"$comment":"c","x-order":1,"markdown":"m",
            "type":"null"})",
         {"null"}, {"1"});
}

}  // namespace
}  // namespace inferno::grammar
