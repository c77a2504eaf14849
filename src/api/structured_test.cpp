// Texts with a form, made by a model that knows nothing of it.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "inferno/inferno.h"
#include "support/json_validator.h"

namespace inferno {
namespace {

const std::vector<std::string> kSchemas = {
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer","minimum":0,
        "maximum":120}},"required":["name","age"],"additionalProperties":false})",
    R"({"type":"array","items":{"enum":["red","green","blue"]},"minItems":2,"maxItems":5})",
    R"({"type":"object","properties":{"kind":{"const":"point"},"at":{"type":"array","prefixItems":[{"type":"number",
        "minimum":-1,"maximum":1},{"type":"number","exclusiveMinimum":0,"maximum":0.5}],"items":false,"minItems":2}},
        "required":["kind","at"],"additionalProperties":false})",
    R"({"anyOf":[{"type":"string","pattern":"^[a-z]{3,8}$"},{"type":"integer","multipleOf":7,"maximum":700,"minimum":0}]})",
    R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"boolean"},"kids":{"type":"array","maxItems":2,
        "items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/tree"})",
    R"({"oneOf":[{"type":"object","properties":{"t":{"const":1},"x":{"type":"null"}},"required":["t","x"],
        "additionalProperties":false},{"type":"object","properties":{"t":{"const":2}},"required":["t"],
        "additionalProperties":false}]})",
    R"({"type":"object","patternProperties":{"^k[0-9]$":{"type":"boolean"}},"additionalProperties":false,
        "minProperties":1,"maxProperties":3})",
    R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":9}},"required":["a"]},
        {"properties":{"a":{"multipleOf":3},"b":{"type":"string","maxLength":4}},"additionalProperties":false}]})"};

GenerateOptions hot(uint64_t seed, Constraint constraint) {
  GenerateOptions options{.max_new_tokens = 200, .sampling = {.temperature = 1, .seed = seed}};
  options.constraint = std::move(constraint);
  return options;
}

TEST(Structured, EveryFinishedTextFitsItsSchema) {
  Llm llm = Llm::builtin();
  int finished = 0;
  for (const std::string& schema : kSchemas) {
    const testing::JsonValidator validator(nlohmann::json::parse(schema));
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const GenerateResult result = llm.generate("Once upon a time", hot(seed, {.json_schema = schema}));
      if (result.reason() == StopReason::length) continue;
      ++finished;
      ASSERT_EQ(result.reason(), StopReason::end_token);
      const auto value = nlohmann::json::parse(result.text(), nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << "\n" << result.text();
      EXPECT_TRUE(validator.fits(value)) << schema << "\n" << result.text();
    }
  }
  EXPECT_GT(finished, 15);
}

TEST(Structured, PatternsGrammarsAndChoicesAreKept) {
  Llm llm = Llm::builtin();
  const std::regex date("(19|20)[0-9]{2}-[01][0-9]");
  const std::regex moves("([a-h][1-8] ){2}(win|draw)");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const std::string pattern = llm.generate("Once", hot(seed, {.regex = "(19|20)[0-9]{2}-[01][0-9]"})).text();
    EXPECT_TRUE(std::regex_match(pattern, date)) << pattern;
    const std::string rules = "root ::= (move \" \"){2} (\"win\" | \"draw\")\nmove ::= [a-h] [1-8]\n";
    const std::string grammar = llm.generate("Once", hot(seed, {.grammar = rules})).text();
    EXPECT_TRUE(std::regex_match(grammar, moves)) << grammar;
    const std::string choice = llm.generate("Once", hot(seed, {.choice = {"yes", "no", "per\xC3\xB2"}})).text();
    EXPECT_TRUE(choice == "yes" || choice == "no" || choice == "per\xC3\xB2") << choice;
  }
}

TEST(Structured, AGrammarThatAllowsEverythingChangesNothing) {
  Llm llm = Llm::builtin();
  GenerateOptions options{.max_new_tokens = 60, .top_logprobs = 2};
  const GenerateResult free = llm.generate("The old ship", options);
  options.constraint.grammar = "root ::= .*";
  const GenerateResult constrained = llm.generate("The old ship", options);
  EXPECT_EQ(free.ids(), constrained.ids());
  EXPECT_EQ(free.text(), constrained.text());
}

TEST(Structured, SamplesAndRequestsSideBySideAreAsAlone) {
  Llm llm = Llm::builtin();
  GenerateOptions options = hot(3, {.json_schema = kSchemas[0]});
  options.samples = 3;
  const GenerateResult together = llm.generate("The sea", options);
  std::vector<Generation> crowd;
  for (size_t i = 0; i < kSchemas.size(); ++i)
    crowd.push_back(llm.submit("The sea", hot(i, {.json_schema = kSchemas[i]})));
  const Generation again = llm.submit("The sea", options);
  const GenerateResult crowded = again.result();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together.samples[i].ids, crowded.samples[i].ids);
  for (size_t i = 0; i < kSchemas.size(); ++i) {
    EXPECT_EQ(crowd[i].result().ids(), llm.generate("The sea", hot(i, {.json_schema = kSchemas[i]})).ids());
  }
}

TEST(Structured, AGrammarThatFailsEndsItsOwnRequestAlone) {
  Llm llm = Llm::builtin();
  // Twice as many ways to read it with every letter, and its end is banned.
  GenerateOptions hostile{.max_new_tokens = 200};
  hostile.constraint.grammar = "root ::= \"a\" p | \"a\" q | \"\\x01\"\np ::= root \"b\"\nq ::= root \"c\"\n";
  for (const int32_t id : llm.tokenize("\x01")) hostile.logit_bias.push_back({id, -INFINITY});
  const Generation plain = llm.submit("The sea", {.max_new_tokens = 40});
  const Generation bad = llm.submit("The sea", hostile);
  EXPECT_THROW((void)bad.result(), Error);
  EXPECT_EQ(plain.result().ids(), llm.generate("The sea", {.max_new_tokens = 40}).ids());
}

TEST(Structured, WhatCannotBeEnforcedIsAnErrorAtOnce) {
  Llm llm = Llm::builtin();
  const auto error = [&](const Constraint& constraint) -> std::string {
    try {
      (void)llm.submit("The sea", hot(1, constraint));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error({.json_schema = R"({"items":{"uniqueItems":true}})"}).find("`uniqueItems` at #/items"),
            std::string::npos);
  EXPECT_NE(error({.regex = "a(?=b)"}).find("look-ahead"), std::string::npos);
  EXPECT_NE(error({.grammar = "root ::= x"}).find("\"x\""), std::string::npos);
  EXPECT_NE(error({.json_schema = "{}", .regex = "a"}).find("one of"), std::string::npos);
  EXPECT_NE(error({.json_schema = R"({"enum":[]})"}).find("no text fits"), std::string::npos);
}

}  // namespace
}  // namespace inferno
