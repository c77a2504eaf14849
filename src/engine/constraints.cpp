#include "engine/constraints.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "grammar/matcher.h"
#include "grammar/source.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

std::optional<grammar::Source> source_of(const Constraint& constraint) {
  using grammar::SourceKind;
  std::vector<grammar::Source> given;
  const auto add = [&](SourceKind kind, const std::string& text) {
    if (!text.empty()) given.push_back({.kind = kind, .text = text, .choices = {}});
  };
  add(SourceKind::json_schema, constraint.json_schema);
  add(SourceKind::regex, constraint.regex);
  add(SourceKind::gbnf, constraint.grammar);
  if (!constraint.choice.empty()) {
    given.push_back({.kind = SourceKind::choice, .text = {}, .choices = constraint.choice});
  }
  if (given.size() > 1) fail_usage("give one of `json_schema`, `regex`, `grammar` and `choice`, not several");
  return given.empty() ? std::nullopt : std::optional(std::move(given.front()));
}

std::string key_of(const grammar::Source& source) {
  std::string key = fmt::format("{} {}", static_cast<int>(source.kind), source.text);
  for (const std::string& choice : source.choices) key += fmt::format("{} {}", choice.size(), choice);
  return key;
}

// The samples of one request in their grammar.
class Masks {
 public:
  Masks(std::shared_ptr<grammar::Grammar> grammar, int32_t samples) : grammar_(std::move(grammar)) {
    matchers_.reserve(static_cast<size_t>(samples));
    for (int32_t i = 0; i < samples; ++i) matchers_.emplace_back(*grammar_);
  }

  std::span<const uint32_t> mask(int32_t sample, std::span<const int32_t> generated) {
    grammar::Matcher& matcher = matchers_[static_cast<size_t>(sample)];
    if (matcher.length() > generated.size()) matcher.rollback(matcher.length() - generated.size());
    while (matcher.length() < generated.size()) {
      const int32_t token = generated[matcher.length()];
      if (!matcher.accept(token)) fail("the token {} does not fit the grammar", token);
    }
    return matcher.mask();
  }

 private:
  std::shared_ptr<grammar::Grammar> grammar_;
  std::vector<grammar::Matcher> matchers_;
};

}  // namespace

std::shared_ptr<const grammar::TokenTrie> Constraints::trie() {
  const std::scoped_lock lock(mutex_);
  if (trie_ == nullptr) trie_ = std::make_shared<const grammar::TokenTrie>(*tokenizer_);
  return trie_;
}

std::shared_ptr<grammar::Grammar> Constraints::find(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto kept = std::ranges::find(kept_, key, &Kept::key);
  if (kept == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, kept);
  return kept->grammar;
}

void Constraints::apply(const Constraint& constraint, Request& request) {
  const std::optional<grammar::Source> source = source_of(constraint);
  if (!source) return;
  if (tokenizer_ == nullptr) fail("a constraint needs a vocabulary, and this model or build has none");
  if (request.allowed) fail_usage("a request has either a mask of its own or a constraint, not both");
  const std::string key = key_of(*source);
  std::shared_ptr<grammar::Grammar> grammar = find(key);
  if (grammar == nullptr) {
    const grammar::Limits limits;
    grammar = std::make_shared<grammar::Grammar>(grammar::parse_source(*source, limits), trie(), limits);
    const std::scoped_lock lock(mutex_);
    kept_.push_front({key, grammar});
    kept_bytes_ += grammar->bytes();
    while (kept_bytes_ > kKeptBytes && kept_.size() > 1) {
      kept_bytes_ -= kept_.back().grammar->bytes();
      kept_.pop_back();
    }
  }
  const auto masks = std::make_shared<Masks>(std::move(grammar), std::clamp(request.samples, 0, 1024));
  request.allowed = [masks](int32_t sample, std::span<const int32_t> generated) {
    return masks->mask(sample, generated);
  };
  request.stop_at_end = true;
}

}  // namespace inferno
