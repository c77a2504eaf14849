// Calls, filters and tests: what takes arguments.
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <unordered_set>

#include "base/text.h"
#include "template/builtins.h"
#include "template/parser.h"

namespace inferno::jinja {

const Expression* Parser::parse_call(const Expression* base) {
  Expression& node = make(Expression::Kind::call, current().line);
  node.operands = {base};
  parse_arguments(node.arguments);
  return &node;
}

void Parser::parse_arguments(std::vector<Argument>& arguments) {
  using Form = Argument::Form;
  expect(TokenType::left_paren, "(");
  bool has_star = false, has_double_star = false;
  std::unordered_set<std::string> names;
  const auto ensure = [&](bool allowed) {
    if (!allowed) fail("arguments of a call are in a wrong order");
  };
  while (!is(TokenType::right_paren)) {
    if (!arguments.empty()) {
      expect(TokenType::comma, ",");
      if (is(TokenType::right_paren)) break;
    }
    Argument argument;
    if (skip(TokenType::multiply)) {
      ensure(!has_star && !has_double_star);
      argument.form = Form::star;
      has_star = true;
    } else if (skip(TokenType::power)) {
      ensure(!has_double_star);
      argument.form = Form::double_star;
      has_double_star = true;
    } else if (is(TokenType::name) && following().type == TokenType::assign) {
      ensure(!has_double_star);
      argument.form = Form::named;
      argument.name = take().text;
      take();
      if (!names.insert(argument.name).second) {
        fail(fmt::format("the argument {} is given twice", printable(argument.name)));
      }
    } else {
      ensure(!has_star && !has_double_star && names.empty());
    }
    argument.value = parse_expression();
    arguments.push_back(std::move(argument));
  }
  take();
}

const Expression* Parser::parse_filter(const Expression* base, bool inline_first) {
  while (is(TokenType::pipe) || inline_first) {
    if (!inline_first) take();
    inline_first = false;
    const Token& token = expect(TokenType::name, "the name of a filter");
    std::string name = token.text;
    while (skip(TokenType::dot)) name += "." + expect(TokenType::name, "a name").text;
    Expression& node = make(Expression::Kind::filter, token.line);
    node.value = program_.names[program_.intern(name)];
    node.operands = {base};
    node.filter = find_filter(name);
    if (node.filter == nullptr && !conditional_) {
      unknown_.emplace_back(token.line, fmt::format("there is no filter named '{}'", printable(name)));
    }
    if (is(TokenType::left_paren)) parse_arguments(node.arguments);
    base = &node;
  }
  return base;
}

const Expression* Parser::parse_test(const Expression* base) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = expect(TokenType::name, "the name of a test").text;
  while (skip(TokenType::dot)) name += "." + expect(TokenType::name, "a name").text;
  Expression& node = make(Expression::Kind::test, line);
  node.value = program_.names[program_.intern(name)];
  node.operands = {base};
  node.test = find_test(name);
  if (node.test == nullptr && !conditional_) {
    unknown_.emplace_back(line, fmt::format("there is no test named '{}'", printable(name)));
  }
  const bool has_operand = is(TokenType::name) || is(TokenType::string) || is(TokenType::integer) ||
                           is(TokenType::floating) || is(TokenType::left_bracket) || is(TokenType::left_brace);
  if (is(TokenType::left_paren)) {
    parse_arguments(node.arguments);
  } else if (has_operand && !is_any_name({"else", "or", "and"})) {
    if (is_name("is")) fail("tests cannot follow each other with is");
    node.arguments.push_back({.value = parse_postfix(parse_primary())});
  }
  if (!negated) return &node;
  Expression& inverse = make(Expression::Kind::logical_not, line);
  inverse.operands = {&node};
  return &inverse;
}

}  // namespace inferno::jinja
