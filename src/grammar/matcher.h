// A grammar ready for a vocabulary, and where one text stands in it.
//
//   Grammar grammar(parse_regex("[a-z]+"), trie);
//   Matcher matcher(grammar);
//   matcher.mask()            // bits of the tokens that may come first
//   matcher.accept(token)     // it was drawn
//
// All matchers of a grammar share what is remembered about it: they belong to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/rules.h"
#include "grammar/token_masks.h"
#include "grammar/token_trie.h"

namespace inferno::grammar {

class Grammar {
 public:
  // An Error when it is too large or no text fits it. Does what can be done ahead of the first token: on a worker.
  Grammar(Rules rules, std::shared_ptr<const TokenTrie> trie, const Limits& limits = {});
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  [[nodiscard]] const TokenTrie& trie() const { return masks_.trie(); }
  // Memory for masks to come, so that they are found quickly. Allocates.
  void make_room() { masks_.make_room(); }
  // About what it occupies, what may be remembered included.
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  friend class Matcher;
  Automaton automaton_;
  TokenMasks masks_;
  size_t bytes_;
};

class Matcher {
 public:
  // The grammar outlives it.
  explicit Matcher(Grammar& grammar);

  // False: the token does not fit here, and nothing changes. End tokens fit where the text may end.
  [[nodiscard]] bool accept(int32_t token);
  // The text so far, whatever it was before: nothing is looked at before the next question. A token that does not fit
  // is an Error then.
  void set_text(std::span<const int32_t> tokens);
  // Memory for so many tokens.
  void reserve(size_t tokens);
  // As if the last `tokens` had not been accepted.
  void rollback(size_t tokens);
  [[nodiscard]] size_t length() const { return tokens_.size(); }
  [[nodiscard]] std::span<const int32_t> tokens() const { return tokens_; }
  // The text is complete as it is.
  [[nodiscard]] bool may_end();
  // Tokens that may come next, as a bitset; valid until the next call.
  [[nodiscard]] std::span<const uint32_t> mask();
  // Finds the mask in bounded time and without allocating; false: it takes more, mask() finds it.
  [[nodiscard]] bool find_mask_quickly();
  // The one that was found last.
  [[nodiscard]] std::span<const uint32_t> found_mask() const { return mask_; }
  // It has all tokens.
  [[nodiscard]] bool found_all() const { return found_all_; }
  // The bytes that must come next, as far as there is no choice and no possible end, at most `most`.
  [[nodiscard]] std::string forced_bytes(size_t most = 256);
  // The only token that may come next; empty: there are several.
  [[nodiscard]] std::optional<int32_t> forced_token();
  // The forced bytes as the tokens they are likeliest to be drawn as: each the longest there is, up to where a token
  // may go beyond what is forced. Returns how many there are in `out`. In bounded time and without allocating.
  [[nodiscard]] int32_t guess_forced(std::span<int32_t> out);

 private:
  // Fills `out` with bytes that must come, as many as there are and fit; where they lead.
  ConfigId find_forced(std::span<char> out, size_t& count);
  // A token may have all bytes up to that node of the trie, and more.
  [[nodiscard]] bool may_go_on(uint32_t node, ConfigId config);
  [[nodiscard]] ConfigId advance(ConfigId config, int32_t token);
  // Makes sure that configs_ belong to what the automaton remembers now.
  void refresh();

  Grammar& grammar_;
  uint64_t generation_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<ConfigId> configs_;  // [length + 1]
  std::vector<uint32_t> mask_;
  bool found_all_ = false;
};

}  // namespace inferno::grammar
