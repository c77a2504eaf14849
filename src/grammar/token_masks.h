// Which tokens may come next: bitsets over the vocabulary, for configurations of an automaton.
//
// Most of what a state allows does not depend on its stack: a token that stays within the state's rule is allowed
// whatever comes after it. That part is found once per state, by a walk through the trie of all tokens, together with
// the nodes of the trie at which the rule may end. What follows such a node depends on the stack, and only these few
// subtrees are walked for each configuration. Masks of the latest configurations are kept whole.
//
// Plain tokens (see TokenTrie) need no walk where any of them may come. A text that counts its characters is at a new
// state after each, and remembers nothing about them: plain tokens and a walk through the others are fast enough.
//
// Not for several threads at once, as the automaton.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/plain_runs.h"
#include "grammar/token_trie.h"

namespace inferno::grammar {

class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const TokenTrie> trie, Automaton& automaton, const Limits& limits);

  // Sets the bits of the tokens that may follow, end tokens included, and clears the others. mask: trie's words().
  void fill(ConfigId config, std::span<uint32_t> mask);
  // The last mask that was filled has all tokens.
  [[nodiscard]] bool is_all() const { return is_all_; }
  // Finds what does not depend on stacks for states in the middle of texts, at most `states` of them.
  void prepare(size_t states);
  // Memory for states to come, and the automaton's.
  void make_room();
  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr size_t kKept = 32;  // whole masks
  // What a state allows by itself.
  struct Own {
    const TokenTree* tree;       // of `nodes`
    bool is_list;                // of token ids; otherwise a bitset
    bool is_all;                 // of the vocabulary, but the end tokens
    uint32_t first, count;       // in words_
    uint32_t nodes, node_count;  // in nodes_: where its rule may end in the middle of a token
  };
  struct Kept {
    ConfigId config;
    uint64_t generation;
    bool is_all;
  };

  [[nodiscard]] const Own& own(uint32_t state);
  [[nodiscard]] Own find_own(uint32_t state);
  // The tokens below a node, read from a configuration on. With ends, nodes_ gets those at which the text may end.
  template <bool with_ends>
  void walk(const TokenTree& tree, uint32_t node, ConfigId config, std::span<uint32_t> mask);
  // The number of characters of plain tokens that may come; negative: not known, or known better by state.
  [[nodiscard]] int plain_characters(ConfigId config) const;
  void fill_by_state(ConfigId config, std::span<uint32_t> mask);
  void add(const Own& own, std::span<uint32_t> mask) const;
  void drop_own();

  std::shared_ptr<const TokenTrie> trie_;
  Automaton& automaton_;
  PlainRuns plain_runs_;
  size_t max_words_;
  std::vector<uint32_t> own_of_;  // (states) kUnknown, or of owns_
  std::vector<Own> owns_;
  std::vector<uint32_t> words_;
  std::vector<uint32_t> nodes_;
  size_t nodes_end_ = 0;           // of nodes_: what is behind it belongs to nobody
  std::vector<ConfigId> levels_;   // (depth of the trie + 1) configurations along the path of a walk
  std::vector<uint32_t> scratch_;  // a mask
  std::vector<Kept> kept_;
  std::vector<uint32_t> kept_masks_;  // [kKept][words]
  size_t next_kept_ = 0;
  bool is_all_ = false;
};

}  // namespace inferno::grammar
