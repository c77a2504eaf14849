#include "template/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "template/parser_nested.h"

namespace inferno::jinja {

uint32_t Program::intern(std::string_view name) {
  const auto [entry, fresh] = ids.emplace(std::string(name), static_cast<uint32_t>(names.size()));
  if (fresh) names.push_back(Value::control(name));
  return entry->second;
}

Parser::Parser(std::string_view source) : tokens_(tokenize(source)), symbols_(program_.frame) {}

Program Parser::parse() {
  program_.body = parse_body({});
  if (!unknown_.empty()) throw SyntaxFailure(unknown_.front().first, unknown_.front().second);
  symbols_.resolve();
  return std::move(program_);
}

bool Parser::is_any_name(std::initializer_list<std::string_view> names) const {
  return std::any_of(names.begin(), names.end(), [this](std::string_view name) { return is_name(name); });
}

const Token& Parser::take() {
  const Token& token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip(TokenType type) {
  if (!is(type)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

const Token& Parser::expect(TokenType type, std::string_view what) {
  if (!is(type)) fail(fmt::format("{} is expected", what));
  return take();
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(fmt::format("{} is expected", name));
}

void Parser::fail(const std::string& message) const {
  throw SyntaxFailure(current().line, message);
}

void Parser::fail_unexpected() const {
  switch (current().type) {
    case TokenType::end:
      fail("the template ends too early");
    case TokenType::block_end:
    case TokenType::variable_end:
      fail("a tag ends too early");
    default:
      fail("an expression is expected");
  }
}

Expression& Parser::make(Expression::Kind kind, int line) {
  Expression& node = program_.expressions.emplace_back();
  node.kind = kind;
  node.line = line;
  return node;
}

Statement& Parser::make(Statement::Kind kind, int line) {
  Statement& node = program_.statements.emplace_back();
  node.kind = kind;
  node.line = line;
  return node;
}

const Expression* Parser::constant(Value value, int line) {
  Expression& node = make(Expression::Kind::constant, line);
  node.value = std::move(value);
  return &node;
}

Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Body body;
  while (!is(TokenType::end)) {
    const Token& token = take();
    if (token.type == TokenType::data) {
      Statement& text = make(Statement::Kind::text, token.line);
      text.value = Value::control(token.text);
      body.push_back(&text);
    } else if (token.type == TokenType::variable_begin) {
      Statement& print = make(Statement::Kind::print, token.line);
      print.expressions.push_back(parse_tuple(true));
      expect(TokenType::variable_end, "}}");
      body.push_back(&print);
    } else {
      if (is_any_name(ends)) return body;
      body.push_back(parse_statement());
      expect(TokenType::block_end, "%}");
    }
  }
  if (ends.size() > 0) fail(fmt::format("{{% {} %}} is missing", *ends.begin()));
  return body;
}

Body Parser::parse_block(std::initializer_list<std::string_view> ends) {
  skip(TokenType::colon);
  expect(TokenType::block_end, "%}");
  return parse_body(ends);
}

Body Parser::parse_inner(std::string_view end, Frame& frame) {
  const bool outer = std::exchange(conditional_, false);
  symbols_.begin_block(frame);
  Body body = parse_block({end});
  take();
  symbols_.end_block();
  conditional_ = outer;
  return body;
}

Target Parser::parse_one_target(bool with_attributes) {
  const Token& token = current();
  if (token.type == TokenType::left_paren) {
    take();
    Target target = parse_target(with_attributes);
    expect(TokenType::right_paren, ")");
    return target;
  }
  constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
  if (token.type != TokenType::name ||
      std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants)) {
    fail("a name to assign to is expected");
  }
  Target target{.name = program_.intern(take().text)};
  if (with_attributes && skip(TokenType::dot)) {
    target.kind = Target::Kind::attribute;
    target.attribute = program_.names[program_.intern(expect(TokenType::name, "a name").text)];
  }
  return target;
}

Target Parser::parse_target(bool with_attributes, std::string_view end_name) {
  const Nested nested(*this);
  Target target;
  bool is_tuple = false;
  while (true) {
    const bool ended =
        is(TokenType::block_end) || is(TokenType::right_paren) || (!end_name.empty() && is_name(end_name));
    if (ended) break;
    target.parts.push_back(parse_one_target(with_attributes));
    if (!skip(TokenType::comma)) break;
    is_tuple = true;
  }
  if (target.parts.empty() && !is_tuple) fail("a name to assign to is expected");
  if (!is_tuple) {
    Target only = std::move(target.parts.front());
    return only;
  }
  target.kind = Target::Kind::tuple;
  return target;
}

void Parser::store(const Target& target, bool as_parameter) {
  switch (target.kind) {
    case Target::Kind::name:
      if (as_parameter) {
        symbols_.parameter(target.name);
      } else {
        symbols_.store(target.name);
      }
      break;
    case Target::Kind::attribute:
      symbols_.load(target.name);
      break;
    case Target::Kind::tuple:
      for (const Target& part : target.parts) store(part, as_parameter);
      break;
  }
}

}  // namespace inferno::jinja
