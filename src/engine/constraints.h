// What texts must be: schemas, patterns and grammars of requests, compiled for the model's vocabulary and kept.
//
// apply() may be called from any thread and takes the time of compiling: not on the thread that steps. Compiling has a
// thread of its own, of low priority: a large grammar takes nothing from those who wait for a token. The masks are
// found while texts are made (masks.h); the latest grammars stay compiled, with what was found about them.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "calls/call_rules.h"
#include "engine/masks.h"
#include "engine/request.h"
#include "inferno/types.h"

namespace inferno {

class Tokenizer;

class Constraints {
 public:
  // The tokenizer may be null: every constraint is an Error then. It outlives this.
  explicit Constraints(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Sets what the request may draw; it then stops at end tokens whatever it said. Nothing to enforce: nothing is done.
  // What is wrong with a constraint is an Error.
  void apply(const Constraint& constraint, Request& request);
  // The same for an answer that may call tools: what it draws is free until a call begins. A schema that cannot be
  // enforced is an Error where it must be; where not, the log is told.
  void apply(const calls::CallForm& form, Request& request);

 private:
  static constexpr size_t kKeptBytes = size_t{256} << 20;
  struct Kept {
    std::string key;
    std::shared_ptr<SharedGrammar> grammar;
  };
  using MakeRules = std::function<grammar::Rules(const grammar::Limits& limits)>;
  // The grammar of that key, kept or compiled.
  [[nodiscard]] std::shared_ptr<SharedGrammar> get(const std::string& key, const Request& request,
                                                   const MakeRules& make);
  void set_masks(std::shared_ptr<SharedGrammar> grammar, Request& request);
  [[nodiscard]] std::shared_ptr<SharedGrammar> find(const std::string& key);
  void keep(const std::string& key, const std::shared_ptr<SharedGrammar>& grammar);
  [[nodiscard]] std::shared_ptr<const grammar::TokenTrie> trie();

  const Tokenizer* tokenizer_;
  std::mutex mutex_;  // of the rest
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::list<Kept> kept_;  // the latest first
  size_t kept_bytes_ = 0;
  MaskWorker worker_;
};

}  // namespace inferno
