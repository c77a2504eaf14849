#include "grammar/schema_alternatives.h"

#include <algorithm>
#include <memory>

namespace inferno::grammar {
namespace {

// The schemas that led to one, to notice when a reference comes back.
struct Chain {
  const SchemaJson* schema;
  std::shared_ptr<const Chain> before;
  int length;
};

struct Pending {
  const SchemaJson* schema;
  std::shared_ptr<const Chain> chain;
};

// An anyOf or oneOf of which one branch has to be chosen.
struct Choice {
  const SchemaJson* list;
  bool only_one;
  std::shared_ptr<const Chain> chain;
};

class Multiplier {
 public:
  Multiplier(SchemaDocument& document, const Limits& limits) : document_(document), limits_(limits) {}

  void add(std::vector<Pending> open, Alternative so_far, std::vector<Choice> choices) {
    while (!open.empty()) {
      const Pending next = std::move(open.back());
      open.pop_back();
      if (!take(next, so_far, open, choices)) return;
    }
    if (choices.empty()) {
      if (found.size() >= limits_.alternatives) {
        document_.fail_at(*chooses_, choice_keyword(), "makes more than {} alternatives for one value",
                          limits_.alternatives);
      }
      found.push_back(std::move(so_far));
      return;
    }
    const Choice choice = std::move(choices.back());
    choices.pop_back();
    for (size_t i = 0; i < choice.list->size(); ++i) {
      Alternative branch = so_far;
      if (choice.only_one) branch.branches.emplace_back(choice.list, i);
      add({{&(*choice.list)[i], choice.chain}}, std::move(branch), choices);
    }
  }

  std::vector<Alternative> found;

 private:
  // False: nothing fits.
  bool take(const Pending& next, Alternative& so_far, std::vector<Pending>& open, std::vector<Choice>& choices) {
    const SchemaJson& schema = *next.schema;
    if (schema.is_boolean()) return schema.get<bool>();
    if (!schema.is_object()) fail_usage("the JSON schema: {} must be an object, true or false", document_.path(schema));
    for (const Chain* c = next.chain.get(); c != nullptr; c = c->before.get()) {
      if (c->schema == &schema) document_.fail_at(schema, "$ref", "leads back to itself");
    }
    if (std::ranges::count(so_far.schemas, &schema) > 0) return true;
    // Work that alternatives do not show: branches that end early, schemas of which many hold at once.
    if (++taken_ > 16 * limits_.alternatives) {
      document_.fail_at(chooses_ != nullptr ? *chooses_ : schema, chooses_ != nullptr ? choice_keyword() : "allOf",
                        "makes too many combinations for one value");
    }
    document_.check_keywords(schema);
    const int length = next.chain == nullptr ? 1 : next.chain->length + 1;
    if (length > limits_.depth) document_.fail_at(schema, "$ref", "is nested more than {} deep", limits_.depth);
    const auto chain = std::make_shared<const Chain>(Chain{&schema, next.chain, length});
    if (document_.find_string(schema, "$ref") != nullptr) {
      open.push_back({&document_.resolve(schema), chain});
      if (document_.ref_stands_alone()) return true;
    }
    so_far.schemas.push_back(&schema);
    if (const SchemaJson* all = branches(schema, "allOf")) {
      // The first one first: it decides the order of properties.
      for (size_t i = all->size(); i-- > 0;) open.push_back({&(*all)[i], chain});
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const SchemaJson* list = branches(schema, keyword);
      if (list == nullptr) continue;
      choices.push_back({list, keyword[0] == 'o', chain});
      if (chooses_ == nullptr) chooses_ = &schema;
    }
    return true;
  }

  const SchemaJson* branches(const SchemaJson& schema, const char* keyword) const {
    const SchemaJson* list = document_.find_array(schema, keyword);
    if (list != nullptr && list->empty()) document_.fail_at(schema, keyword, "is empty");
    return list;
  }

  [[nodiscard]] const char* choice_keyword() const {
    return document_.find(*chooses_, "anyOf") != nullptr ? "anyOf" : "oneOf";
  }

  SchemaDocument& document_;
  const Limits& limits_;
  size_t taken_ = 0;
  const SchemaJson* chooses_ = nullptr;  // the first schema with an anyOf or oneOf
};

}  // namespace

std::vector<Alternative> alternatives_of(const Schemas& schemas, SchemaDocument& document, const Limits& limits) {
  Multiplier multiplier(document, limits);
  std::vector<Pending> open;
  for (size_t i = schemas.size(); i-- > 0;) open.push_back({schemas[i], nullptr});
  multiplier.add(std::move(open), {}, {});
  return std::move(multiplier.found);
}

}  // namespace inferno::grammar
