#include <fmt/core.h>

#include <stdexcept>
#include <unordered_set>

#include "base/text.h"
#include "template/parser.h"
#include "template/parser_nested.h"

namespace inferno::jinja {

const Statement* Parser::parse_statement() {
  const std::string word = is(TokenType::name) ? current().text : std::string();
  if (word == "if") return parse_if();
  if (word == "for") return parse_for();
  if (word == "set") return parse_set();
  if (word == "macro") return parse_macro();
  if (word == "call") return parse_call_block();
  if (word == "filter") return parse_filter_block();
  if (word == "with") return parse_with();
  if (word == "print") return parse_print();
  if (word == "generation") return parse_generation();
  if (word == "break") return parse_loop_control(Statement::Kind::stop);
  if (word == "continue") return parse_loop_control(Statement::Kind::next);
  for (const std::string_view name : {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (word == name) fail(fmt::format("{{% {} %}} is not supported in chat templates", word));
  }
  fail(word.empty() ? "the name of a statement is expected" : fmt::format("unknown statement '{}'", printable(word)));
}

const Statement* Parser::parse_print() {
  Statement& node = make(Statement::Kind::print, take().line);
  while (!is(TokenType::block_end)) {
    if (!node.expressions.empty()) expect(TokenType::comma, ",");
    node.expressions.push_back(parse_expression());
  }
  return &node;
}

const Statement* Parser::parse_if() {
  Statement& node = make(Statement::Kind::branch, take().line);
  const bool outer = std::exchange(conditional_, true);
  const auto parse_condition = [this] { return parse_tuple(false); };
  const auto parse_branch = [&](const Expression* condition, std::initializer_list<std::string_view> ends) {
    symbols_.begin_branch();
    node.branches.push_back({.condition = condition, .body = parse_block(ends)});
    symbols_.end_branch();
  };
  const Expression* condition = parse_condition();
  symbols_.begin_branches();
  parse_branch(condition, {"elif", "else", "endif"});
  // All elif parts are one branch, in which each has a branch of its own.
  bool in_elif = false;
  while (is_name("elif")) {
    take();
    if (!in_elif) symbols_.begin_branch();
    in_elif = true;
    const Expression* next = parse_condition();
    symbols_.begin_branches();
    parse_branch(next, {"elif", "else", "endif"});
    symbols_.end_branches();
  }
  if (in_elif) symbols_.end_branch();
  if (skip_name("else")) parse_branch(nullptr, {"endif"});
  symbols_.end_branches();
  expect_name("endif");
  conditional_ = outer;
  return &node;
}

const Statement* Parser::parse_for() {
  Statement& node = make(Statement::Kind::loop, take().line);
  node.targets.push_back(parse_target(false, "in"));
  check_loop_name(node.targets.front());
  expect_name("in");
  node.expressions = {parse_tuple(false, "recursive"), nullptr};
  const bool outer = std::exchange(conditional_, false);
  if (skip_name("if")) {
    symbols_.begin_block(node.otherwise_frame);
    store(node.targets.front(), true);
    node.expressions[1] = parse_expression();
    symbols_.end_block();
  }
  node.recursive = skip_name("recursive");
  symbols_.begin_block(node.frame);
  symbols_.parameter(program_.intern("loop"));
  store(node.targets.front(), true);
  ++loops_;
  node.body = parse_block({"endfor", "else"});
  --loops_;
  symbols_.end_block();
  if (take().text == "else") node.otherwise = parse_inner("endfor", node.otherwise_frame);
  conditional_ = outer;
  return &node;
}

void Parser::check_loop_name(const Target& target) const {
  if (target.kind == Target::Kind::tuple) {
    for (const Target& part : target.parts) check_loop_name(part);
  } else if (program_.names[target.name].as_view() == "loop") {
    fail("the name loop cannot be assigned to");
  }
}

const Statement* Parser::parse_set() {
  const int line = take().line;
  Target target = parse_target(true);
  if (loops_ > 0 && target.kind != Target::Kind::attribute) check_loop_name(target);
  if (skip(TokenType::assign)) {
    Statement& node = make(Statement::Kind::set, line);
    node.expressions.push_back(parse_tuple(true));
    store(target, false);
    node.targets.push_back(std::move(target));
    return &node;
  }
  Statement& node = make(Statement::Kind::capture, line);
  store(target, false);
  node.targets.push_back(std::move(target));
  node.expressions.push_back(parse_filter(nullptr));
  node.body = parse_inner("endset", node.frame);
  return &node;
}

void Parser::parse_parameters(Statement& statement) {
  expect(TokenType::left_paren, "(");
  std::unordered_set<uint32_t> names;
  while (!is(TokenType::right_paren)) {
    if (!statement.parameters.empty()) expect(TokenType::comma, ",");
    const Target target = parse_one_target(false);
    if (target.kind != Target::Kind::name) fail("the name of a parameter is expected");
    Parameter parameter{.name = target.name, .text = program_.names[target.name]};
    if (!names.insert(parameter.name).second) fail("a parameter is there twice");
    symbols_.parameter(parameter.name);
    if (skip(TokenType::assign)) {
      parameter.value = parse_expression();
    } else if (!statement.parameters.empty() && statement.parameters.back().value != nullptr) {
      fail("a parameter without a default follows one that has it");
    }
    statement.parameters.push_back(std::move(parameter));
  }
  take();
}

void Parser::parse_macro_body(Statement& statement, std::string_view end) {
  const int loops = std::exchange(loops_, 0);  // a macro cannot end the loop it is defined in
  macros_.push_back(&statement);
  statement.body = parse_block({end});
  take();
  macros_.pop_back();
  loops_ = loops;
}

const Statement* Parser::parse_macro() {
  Statement& node = make(Statement::Kind::macro, take().line);
  const Token& name = expect(TokenType::name, "the name of a macro");
  node.name = program_.intern(name.text);
  symbols_.store(node.name);
  symbols_.capture();
  const bool outer = std::exchange(conditional_, false);
  symbols_.begin_block(node.frame);
  parse_parameters(node);
  parse_macro_body(node, "endmacro");
  symbols_.end_block();
  conditional_ = outer;
  return &node;
}

const Statement* Parser::parse_call_block() {
  Statement& node = make(Statement::Kind::call, take().line);
  symbols_.capture();
  const bool outer = conditional_;
  // The parameters belong to the block's own names, the call to those around it.
  const size_t parameters = at_;
  if (is(TokenType::left_paren)) {
    int open = 0;
    do {
      if (is(TokenType::left_paren)) ++open;
      if (is(TokenType::right_paren)) --open;
      if (is(TokenType::end)) fail_unexpected();
      take();
    } while (open > 0);
  }
  const bool has_parameters = at_ != parameters;
  const Expression* call = parse_expression();
  if (call->kind != Expression::Kind::call) fail("a call is expected");
  node.expressions.push_back(call);
  conditional_ = false;
  symbols_.begin_block(node.frame);
  if (has_parameters) {
    const size_t body = std::exchange(at_, parameters);
    parse_parameters(node);
    at_ = body;
  }
  parse_macro_body(node, "endcall");
  symbols_.end_block();
  conditional_ = outer;
  return &node;
}

const Statement* Parser::parse_filter_block() {
  Statement& node = make(Statement::Kind::filter, take().line);
  node.expressions.push_back(parse_filter(nullptr, true));
  node.body = parse_inner("endfilter", node.frame);
  return &node;
}

const Statement* Parser::parse_with() {
  Statement& node = make(Statement::Kind::with, take().line);
  while (!is(TokenType::block_end)) {
    if (!node.targets.empty()) expect(TokenType::comma, ",");
    node.targets.push_back(parse_one_target(false));
    expect(TokenType::assign, "=");
    node.expressions.push_back(parse_expression());
  }
  const bool outer = std::exchange(conditional_, false);
  symbols_.begin_block(node.frame);
  for (const Target& target : node.targets) store(target, true);
  node.body = parse_block({"endwith"});
  take();
  symbols_.end_block();
  conditional_ = outer;
  return &node;
}

const Statement* Parser::parse_generation() {
  Statement& node = make(Statement::Kind::generation, take().line);
  const int loops = std::exchange(loops_, 0);
  node.body = parse_inner("endgeneration", node.frame);
  loops_ = loops;
  return &node;
}

const Statement* Parser::parse_loop_control(Statement::Kind kind) {
  const int line = take().line;
  if (loops_ == 0) throw SyntaxFailure(line, "break and continue belong inside a loop");
  return &make(kind, line);
}

}  // namespace inferno::jinja
