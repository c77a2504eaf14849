// What texts must be: schemas, patterns and grammars of requests, compiled for the model's vocabulary and kept.
//
// apply() may be called from any thread and takes the time of compiling: not on the thread that steps. The masks it
// gives a request are found on the stepping thread alone, without locks; the latest grammars stay compiled, with what
// was found about them.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "engine/request.h"
#include "inferno/types.h"

namespace inferno {

class Tokenizer;
namespace grammar {
class Grammar;
class TokenTrie;
}  // namespace grammar

class Constraints {
 public:
  // The tokenizer may be null: every constraint is an Error then. It outlives this.
  explicit Constraints(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Sets what the request may draw; it then stops at end tokens whatever it said. Nothing to enforce: nothing is done.
  // What is wrong with a constraint is an Error.
  void apply(const Constraint& constraint, Request& request);

 private:
  static constexpr size_t kKeptBytes = size_t{256} << 20;
  struct Kept {
    std::string key;
    std::shared_ptr<grammar::Grammar> grammar;
  };
  [[nodiscard]] std::shared_ptr<grammar::Grammar> find(const std::string& key);
  [[nodiscard]] std::shared_ptr<const grammar::TokenTrie> trie();

  const Tokenizer* tokenizer_;
  std::mutex mutex_;  // of the rest
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::list<Kept> kept_;  // the latest first
  size_t kept_bytes_ = 0;
};

}  // namespace inferno
