// "a.b.0": how filters name what they read of each item.
#pragma once

#include <functional>
#include <vector>

#include "template/run.h"
#include "template/value.h"

namespace inferno::jinja {

class Evaluator;

class AttributePath {
 public:
  AttributePath(Run& run, const Value& path);
  // What is not there is undefined, or `otherwise` when that is given.
  [[nodiscard]] Value get(Evaluator& evaluator, const Value& item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

using SortKey = std::function<Value(const Value&)>;

// What sorting compares: strings in lower case, unless case matters.
[[nodiscard]] Value ignore_case(Run& run, const Value& value, bool case_sensitive);

}  // namespace inferno::jinja
