// Tokens to a Program.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "template/lexer.h"
#include "template/symbols.h"
#include "template/syntax.h"

namespace inferno::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source);
  // Throws SyntaxFailure.
  [[nodiscard]] Program parse();

 private:
  // Counts how deep the grammar recurses; more is a SyntaxFailure.
  class Nested;

  // tokens
  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool is(TokenType type) const { return current().type == type; }
  [[nodiscard]] bool is_name(std::string_view name) const { return is(TokenType::name) && current().text == name; }
  [[nodiscard]] bool is_any_name(std::initializer_list<std::string_view> names) const;
  const Token& take();
  bool skip(TokenType type);
  bool skip_name(std::string_view name);
  const Token& expect(TokenType type, std::string_view what);
  void expect_name(std::string_view name);
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_unexpected() const;

  // nodes
  Expression& make(Expression::Kind kind, int line);
  Statement& make(Statement::Kind kind, int line);
  const Expression* constant(Value value, int line);

  // expressions, from the weakest to the strongest binding
  const Expression* parse_expression(bool with_conditional = true);
  const Expression* parse_or();
  const Expression* parse_and();
  const Expression* parse_not();
  const Expression* parse_compare();
  const Expression* parse_sum();
  const Expression* parse_concat();
  const Expression* parse_product();
  const Expression* parse_power();
  const Expression* parse_unary(bool with_filter = true);
  const Expression* parse_primary();
  const Expression* parse_word();
  const Expression* parse_tuple(bool with_conditional, std::string_view end_name = {}, bool parenthesized = false);
  const Expression* parse_list();
  const Expression* parse_dict();
  const Expression* parse_postfix(const Expression* base);
  const Expression* parse_filters_and_tests(const Expression* base);
  const Expression* parse_subscript(const Expression* base);
  const Expression* parse_subscript_argument();
  const Expression* parse_call(const Expression* base);
  const Expression* parse_filter(const Expression* base, bool inline_first = false);
  const Expression* parse_test(const Expression* base);
  void parse_arguments(std::vector<Argument>& arguments);
  template <typename Next>
  const Expression* parse_chain(Expression::Kind kind, std::initializer_list<std::pair<TokenType, Operator>> operators,
                                Next next);

  // statements
  Body parse_body(std::initializer_list<std::string_view> ends);   // up to {% end; the end's name is current
  Body parse_block(std::initializer_list<std::string_view> ends);  // from the end of the opening tag
  Body parse_inner(std::string_view end, Frame& frame);            // a block with variables of its own
  const Statement* parse_statement();
  const Statement* parse_print();
  const Statement* parse_if();
  const Statement* parse_for();
  const Statement* parse_set();
  const Statement* parse_macro();
  const Statement* parse_call_block();
  const Statement* parse_filter_block();
  const Statement* parse_with();
  const Statement* parse_generation();
  const Statement* parse_loop_control(Statement::Kind kind);
  void parse_parameters(Statement& statement);
  void parse_macro_body(Statement& statement, std::string_view end);
  Target parse_target(bool with_attributes, std::string_view end_name = {});
  Target parse_one_target(bool with_attributes);
  void store(const Target& target, bool as_parameter);
  void check_loop_name(const Target& target) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  Program program_;
  Symbols symbols_;
  // Unknown filters and tests are errors, unless a condition decides whether they are reached.
  bool conditional_ = false;
  std::vector<std::pair<int, std::string>> unknown_;  // line, message
  int loops_ = 0;                                     // open loops that break and continue can mean
  std::vector<Statement*> macros_;                    // open macros
};

}  // namespace inferno::jinja
