// For the sources of the parser alone.
#pragma once

#include "template/parser.h"

namespace inferno::jinja {

// Deep enough for anything written by a person, shallow enough for any stack.
constexpr int kMaxSyntaxDepth = 120;

class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxSyntaxDepth * 3) {
      --parser_.depth_;
      parser_.fail("the template is nested too deep");
    }
  }
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace inferno::jinja
