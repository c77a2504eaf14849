// Prompt look-up: what followed when the latest tokens appeared before.
//
// Every pair of tokens is indexed by a hash, with a chain back to earlier pairs of the same hash. A draft is what
// follows the place that the text agrees with for the longest stretch, the latest such place. Where that place is near
// the end, the draft goes on with itself: a text that repeats is guessed for as long as wanted.
//
// All memory is taken when it is made; adding a token and looking up take bounded time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace inferno {

class NgramIndex {
 public:
  // Tokens that must agree, at least and as far as it is looked; places that are looked at.
  static constexpr int32_t kLeastMatch = 2;
  static constexpr int32_t kMostMatch = 16;
  static constexpr int32_t kMostPlaces = 32;

  // For a text of at most `longest` tokens. It finds its continuations in `prediction` as well, which is not part of
  // it.
  NgramIndex(std::span<const int32_t> prediction, int32_t longest);

  // The text is now these tokens, which begin with those it was before.
  void update(std::span<const int32_t> text);
  // Writes what may follow the text to `out`; returns how many tokens.
  [[nodiscard]] int32_t draft(std::span<int32_t> out) const;

 private:
  void add(int32_t token);
  [[nodiscard]] size_t bucket(int32_t first, int32_t second) const;
  // Tokens up to `end`, which is before the last, that agree with the end of the text.
  [[nodiscard]] int32_t match_length(int32_t end) const;

  int32_t text_begin_ = 0;        // in tokens_
  std::vector<int32_t> tokens_;   // the prediction, a gap, the text
  std::vector<int32_t> latest_;   // by bucket: where a pair ends, or -1
  std::vector<int32_t> earlier_;  // by token: where the pair of its bucket before it ends, or -1
};

}  // namespace inferno
