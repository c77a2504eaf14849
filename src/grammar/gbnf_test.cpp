// Grammars in llama.cpp's form.
#include <gtest/gtest.h>

#include "grammar/test_grammar.h"

namespace inferno::grammar {
namespace {

constexpr const char* kArithmetic = R"gbnf(
root  ::= (expr "=" ws term "\n")+   # a comment
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";

TEST(Gbnf, TakesWhatItsRulesSay) {
  EXPECT_TRUE(gbnf_takes(kArithmetic, "x+(2*y)=7\n"));
  EXPECT_TRUE(gbnf_takes(kArithmetic, "x = 1\ny= 2\n"));
  EXPECT_FALSE(gbnf_takes(kArithmetic, "x+(2*y=7\n"));
  EXPECT_TRUE(gbnf_takes("root ::= \"a\" | \"b\"\n", "b"));
  EXPECT_TRUE(gbnf_takes("root ::= (\n \"a\" |\n \"b\"\n){2,3}", "aba"));
  EXPECT_TRUE(gbnf_takes("root ::= \"\\x41\\u00e4\\n\" [^\\]x] .", "A\xC3\xA4\ny\xE2\x82\xAC"));
  EXPECT_TRUE(gbnf_takes("root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", "[[],[[]]]"));
  EXPECT_TRUE(gbnf_takes("root ::= \"a\"{2} \"b\"{,2} \"c\"{1,}", "aabcc"));
}

TEST(Gbnf, SaysWhatIsWrong) {
  const auto error = [](const std::string& source) { return error_of(SourceKind::gbnf, source); };
  EXPECT_NE(error("start ::= \"a\"").find("root"), std::string::npos);
  EXPECT_NE(error("root ::= other").find("\"other\""), std::string::npos);
  EXPECT_NE(error("root ::= root \"a\" | \"b\"").find("left recursion"), std::string::npos);
  EXPECT_NE(error("root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"").find("left recursion"), std::string::npos);
  EXPECT_NE(error("root ::= \"a\nb\"").find("no end"), std::string::npos);
  EXPECT_NE(error("root ::= \"a\"\nroot ::= \"b\"").find("twice"), std::string::npos);
  EXPECT_NE(error("root = \"a\"").find("::="), std::string::npos);
  EXPECT_NE(error("root ::= \"a\" root").find("no text fits"), std::string::npos);
  EXPECT_NE(error("root ::= <token>").find("tokens"), std::string::npos);
  EXPECT_NE(error("root ::= (\"a\"").find("no )"), std::string::npos);
}

}  // namespace
}  // namespace inferno::grammar
