#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "template/builtins.h"
#include "template/parser.h"
#include "template/parser_nested.h"

namespace inferno::jinja {

const Expression* Parser::parse_expression(bool with_conditional) {
  const Nested nested(*this);
  const int line = current().line;
  const size_t unknown = unknown_.size();
  const Expression* expression = parse_or();
  if (!with_conditional) return expression;
  while (skip_name("if")) {
    unknown_.resize(unknown);
    const bool outer = std::exchange(conditional_, true);
    Expression& node = make(Expression::Kind::conditional, line);
    node.operands = {expression, parse_or(), nullptr};
    if (skip_name("else")) node.operands[2] = parse_expression();
    conditional_ = outer;
    expression = &node;
  }
  return expression;
}

const Expression* Parser::parse_or() {
  const Expression* first = parse_and();
  if (!is_name("or")) return first;
  Expression& node = make(Expression::Kind::logical_or, first->line);
  node.operands.push_back(first);
  while (skip_name("or")) node.operands.push_back(parse_and());
  return &node;
}

const Expression* Parser::parse_and() {
  const Expression* first = parse_not();
  if (!is_name("and")) return first;
  Expression& node = make(Expression::Kind::logical_and, first->line);
  node.operands.push_back(first);
  while (skip_name("and")) node.operands.push_back(parse_not());
  return &node;
}

const Expression* Parser::parse_not() {
  const Nested nested(*this);
  if (!is_name("not")) return parse_compare();
  Expression& node = make(Expression::Kind::logical_not, take().line);
  node.operands.push_back(parse_not());
  return &node;
}

const Expression* Parser::parse_compare() {
  constexpr std::pair<TokenType, Operator> kOperators[] = {
      {TokenType::equal, Operator::equal},     {TokenType::not_equal, Operator::not_equal},
      {TokenType::less, Operator::less},       {TokenType::less_equal, Operator::less_equal},
      {TokenType::greater, Operator::greater}, {TokenType::greater_equal, Operator::greater_equal}};
  const Expression* first = parse_sum();
  Expression* node = nullptr;
  while (true) {
    const auto* const found =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& row) { return is(row.first); });
    Operator op = Operator::in;
    if (found != std::end(kOperators)) {
      take();
      op = found->second;
    } else if (is_name("not") && following().type == TokenType::name && following().text == "in") {
      take();
      take();
      op = Operator::not_in;
    } else if (!skip_name("in")) {
      return node == nullptr ? first : node;
    }
    if (node == nullptr) {
      node = &make(Expression::Kind::compare, first->line);
      node->operands.push_back(first);
    }
    node->operators.push_back(op);
    node->operands.push_back(parse_sum());
  }
}

template <typename Next>
const Expression* Parser::parse_chain(Expression::Kind kind,
                                      std::initializer_list<std::pair<TokenType, Operator>> operators, Next next) {
  const Expression* first = next();
  Expression* node = nullptr;
  while (true) {
    const auto* const found =
        std::find_if(operators.begin(), operators.end(), [&](const auto& row) { return is(row.first); });
    if (found == operators.end()) return node == nullptr ? first : node;
    take();
    if (node == nullptr) {
      node = &make(kind, first->line);
      node->operands.push_back(first);
    }
    node->operators.push_back(found->second);
    node->operands.push_back(next());
  }
}

const Expression* Parser::parse_sum() {
  return parse_chain(Expression::Kind::arithmetic,
                     {{TokenType::add, Operator::add}, {TokenType::subtract, Operator::subtract}},
                     [this] { return parse_concat(); });
}

const Expression* Parser::parse_concat() {
  return parse_chain(Expression::Kind::concat, {{TokenType::tilde, Operator::add}}, [this] { return parse_product(); });
}

const Expression* Parser::parse_product() {
  return parse_chain(Expression::Kind::arithmetic,
                     {{TokenType::multiply, Operator::multiply},
                      {TokenType::divide, Operator::divide},
                      {TokenType::floor_divide, Operator::floor_divide},
                      {TokenType::modulo, Operator::modulo}},
                     [this] { return parse_power(); });
}

const Expression* Parser::parse_power() {
  return parse_chain(Expression::Kind::arithmetic, {{TokenType::power, Operator::power}},
                     [this] { return parse_unary(); });
}

const Expression* Parser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  const Expression* expression = nullptr;
  if (is(TokenType::subtract) || is(TokenType::add)) {
    const bool negates = is(TokenType::subtract);
    Expression& node = make(negates ? Expression::Kind::negate : Expression::Kind::plus, take().line);
    node.operands.push_back(parse_unary(false));
    expression = &node;
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(expression);
  return with_filter ? parse_filters_and_tests(expression) : expression;
}

const Expression* Parser::parse_primary() {
  const int line = current().line;
  switch (current().type) {
    case TokenType::name:
      return parse_word();
    case TokenType::string: {
      std::string text = take().text;
      while (is(TokenType::string)) text += take().text;
      return constant(Value::control(text), line);
    }
    case TokenType::integer:
      return constant(Value::integer(take().integer), line);
    case TokenType::floating:
      return constant(Value::floating(take().floating), line);
    case TokenType::left_paren: {
      take();
      const Expression* inner = parse_tuple(true, {}, true);
      expect(TokenType::right_paren, ")");
      return inner;
    }
    case TokenType::left_bracket:
      return parse_list();
    case TokenType::left_brace:
      return parse_dict();
    default:
      fail_unexpected();
  }
}

const Expression* Parser::parse_word() {
  const Token& token = take();
  const std::string& text = token.text;
  if (text == "true" || text == "True") return constant(Value::boolean(true), token.line);
  if (text == "false" || text == "False") return constant(Value::boolean(false), token.line);
  if (text == "none" || text == "None") return constant(Value(), token.line);
  Expression& node = make(Expression::Kind::name, token.line);
  node.name = program_.intern(text);
  node.value = program_.names[node.name];
  symbols_.load(node.name);
  for (Statement* macro : macros_) {
    if (text == "caller") macro->uses_caller = true;
    if (text == "kwargs") macro->uses_kwargs = true;
    if (text == "varargs") macro->uses_varargs = true;
  }
  return &node;
}

const Expression* Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool parenthesized) {
  const int line = current().line;
  std::vector<const Expression*> items;
  bool is_tuple = false;
  while (true) {
    const bool ended = is(TokenType::variable_end) || is(TokenType::block_end) || is(TokenType::right_paren) ||
                       (!end_name.empty() && is_name(end_name));
    if (ended) break;
    items.push_back(parse_expression(with_conditional));
    if (!skip(TokenType::comma)) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items.front();
  if (!is_tuple && !parenthesized) fail("an expression is missing");
  Expression& node = make(Expression::Kind::tuple, line);
  node.operands = std::move(items);
  return &node;
}

const Expression* Parser::parse_list() {
  Expression& node = make(Expression::Kind::list, take().line);
  while (!is(TokenType::right_bracket)) {
    if (!node.operands.empty()) {
      expect(TokenType::comma, ",");
      if (is(TokenType::right_bracket)) break;
    }
    node.operands.push_back(parse_expression());
  }
  take();
  return &node;
}

const Expression* Parser::parse_dict() {
  Expression& node = make(Expression::Kind::dict, take().line);
  while (!is(TokenType::right_brace)) {
    if (!node.operands.empty()) {
      expect(TokenType::comma, ",");
      if (is(TokenType::right_brace)) break;
    }
    node.operands.push_back(parse_expression());
    expect(TokenType::colon, ":");
    node.operands.push_back(parse_expression());
  }
  take();
  return &node;
}

const Expression* Parser::parse_postfix(const Expression* base) {
  while (true) {
    if (is(TokenType::dot) || is(TokenType::left_bracket)) {
      base = parse_subscript(base);
    } else if (is(TokenType::left_paren)) {
      base = parse_call(base);
    } else {
      return base;
    }
  }
}

const Expression* Parser::parse_filters_and_tests(const Expression* base) {
  while (true) {
    if (is(TokenType::pipe)) {
      base = parse_filter(base);
    } else if (is_name("is")) {
      base = parse_test(base);
    } else if (is(TokenType::left_paren)) {
      base = parse_call(base);
    } else {
      return base;
    }
  }
}

const Expression* Parser::parse_subscript(const Expression* base) {
  const Token& token = take();
  if (token.type == TokenType::dot) {
    const Token& name = take();
    if (name.type == TokenType::name) {
      Expression& node = make(Expression::Kind::attribute, token.line);
      node.value = program_.names[program_.intern(name.text)];
      node.operands = {base};
      return &node;
    }
    if (name.type != TokenType::integer) fail("a name or number must follow a dot");
    Expression& node = make(Expression::Kind::item, token.line);
    node.operands = {base, constant(Value::integer(name.integer), name.line)};
    return &node;
  }
  std::vector<const Expression*> arguments;
  while (!is(TokenType::right_bracket)) {
    if (!arguments.empty()) expect(TokenType::comma, ",");
    arguments.push_back(parse_subscript_argument());
  }
  take();
  Expression& node = make(Expression::Kind::item, token.line);
  const Expression* index = nullptr;
  if (arguments.size() == 1) {
    index = arguments.front();
  } else {
    Expression& tuple = make(Expression::Kind::tuple, token.line);
    const bool has_slice = std::any_of(arguments.begin(), arguments.end(),
                                       [](auto* argument) { return argument->kind == Expression::Kind::slice; });
    if (has_slice) fail("a slice must be the only subscript");
    tuple.operands = std::move(arguments);
    index = &tuple;
  }
  node.operands = {base, index};
  return &node;
}

const Expression* Parser::parse_subscript_argument() {
  const int line = current().line;
  const Expression* begin = nullptr;
  if (!is(TokenType::colon)) {
    begin = parse_expression();
    if (!is(TokenType::colon)) return begin;
  }
  take();
  Expression& node = make(Expression::Kind::slice, line);
  node.operands = {begin, nullptr, nullptr};
  const auto at_end = [&] { return is(TokenType::right_bracket) || is(TokenType::comma); };
  if (!is(TokenType::colon) && !at_end()) node.operands[1] = parse_expression();
  if (skip(TokenType::colon) && !at_end()) node.operands[2] = parse_expression();
  return &node;
}

}  // namespace inferno::jinja
