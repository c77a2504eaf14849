#include "engine/constraints.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/log.h"
#include "base/platform.h"
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

// Texts longer than that are rare: their matchers may allocate.
constexpr size_t kLongest = 1 << 16;
constexpr int32_t kMaxSamples = 1024;

// On a thread of low priority, for which the caller waits.
std::shared_ptr<SharedGrammar> compile(const std::function<grammar::Rules(const grammar::Limits&)>& make,
                                       std::shared_ptr<const grammar::TokenTrie> trie) {
  std::shared_ptr<SharedGrammar> made;
  std::exception_ptr error;
  const auto work = [&] {
    platform::name_this_thread("inferno-grammar");
    platform::lower_thread_priority();
    try {
      const grammar::Limits limits;
      made = std::make_shared<SharedGrammar>(make(limits), std::move(trie), limits);
    } catch (...) {
      error = std::current_exception();
    }
  };
  {
    const BlockSignals block;
    try {
      std::thread(work).join();
    } catch (const std::system_error& failed) {
      fail("no thread can be made to compile a grammar on: {}", failed.what());
    }
  }
  if (error) std::rethrow_exception(error);
  return made;
}

}  // namespace

std::shared_ptr<const grammar::TokenTrie> Constraints::trie() {
  const std::scoped_lock lock(mutex_);
  if (trie_ == nullptr) trie_ = std::make_shared<const grammar::TokenTrie>(*tokenizer_);
  return trie_;
}

std::shared_ptr<SharedGrammar> Constraints::find(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto kept = std::ranges::find(kept_, key, &Kept::key);
  if (kept == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, kept);
  return kept->grammar;
}

void Constraints::keep(const std::string& key, const std::shared_ptr<SharedGrammar>& grammar) {
  if (std::ranges::find(kept_, key, &Kept::key) != kept_.end()) return;
  kept_.push_front({key, grammar});
  kept_bytes_ += grammar->grammar.bytes();
  while (kept_bytes_ > kKeptBytes && kept_.size() > 1) {
    kept_bytes_ -= kept_.back().grammar->grammar.bytes();
    kept_.pop_back();
  }
}

std::shared_ptr<SharedGrammar> Constraints::get(const std::string& key, const Request& request, const MakeRules& make) {
  if (tokenizer_ == nullptr) fail("a constraint needs a vocabulary, and this model or build has none");
  if (request.allowed) fail_usage("a request has either a mask of its own or a constraint, not both");
  std::shared_ptr<SharedGrammar> grammar = find(key);
  if (grammar == nullptr) grammar = compile(make, trie());
  const std::scoped_lock lock(mutex_);
  keep(key, grammar);
  worker_.start();
  return grammar;
}

void Constraints::set_masks(std::shared_ptr<SharedGrammar> grammar, Request& request) {
  const size_t longest = request.max_new_tokens < 0 ? kLongest : static_cast<size_t>(request.max_new_tokens);
  const auto masks = std::make_shared<Masks>(std::move(grammar), std::clamp(request.samples, 0, kMaxSamples),
                                             std::min(longest, kLongest), worker_);
  request.mask_ready = [masks](int32_t sample, std::span<const int32_t> generated, int32_t guessed) {
    return masks->ready(sample, generated, guessed);
  };
  request.forced = [masks](int32_t sample, std::span<const int32_t> generated, std::span<int32_t> out) {
    return masks->forced(sample, generated, out);
  };
  request.allowed = [masks](int32_t sample, std::span<const int32_t> generated) {
    return masks->mask(sample, generated);
  };
}

void Constraints::apply(const Constraint& constraint, Request& request) {
  const std::optional<grammar::Source> source = source_of(constraint);
  if (!source) return;
  set_masks(get(key_of(*source), request,
                [&](const grammar::Limits& limits) { return grammar::parse_source(*source, limits); }),
            request);
  request.stop_at_end = true;
}

void Constraints::apply(const calls::CallForm& form, Request& request) {
  std::vector<std::string> relaxed;
  const auto make = [&](const calls::CallForm& of) {
    return get("tools " + of.key(), request,
               [&](const grammar::Limits& limits) { return calls::call_rules(of, limits, relaxed); });
  };
  std::shared_ptr<SharedGrammar> grammar;
  try {
    grammar = make(form);
  } catch (const Error& error) {
    // All of it is too large: the form of calls at least.
    const bool must = form.required || std::ranges::any_of(*form.tools, &calls::Tool::strict);
    if (must || form.any_arguments || tokenizer_ == nullptr || request.allowed) throw;
    relaxed.emplace_back(error.what());
    calls::CallForm any = form;
    any.any_arguments = true;
    grammar = make(any);
  }
  for (const std::string& reason : relaxed) log(LogLevel::warn, "not enforced in calls of tools: {}", reason);
  set_masks(std::move(grammar), request);
  // Where a call is all there may be, its end is the answer's.
  if (form.required) request.stop_at_end = true;
}

}  // namespace inferno
