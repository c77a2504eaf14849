// Unigram, SentencePiece's language model over pieces: of all ways to cut a text, the likeliest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/charsmap.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/space_marks.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Text is normalized as the file says (a compiled map, runs of spaces), spaces are written as U+2581. Sums of scores
// are floats, as in the original, so that equal ways end alike. Characters that no token covers are the byte tokens
// <0xNN> where the vocabulary has them, else one unknown token for a run of them. What is not UTF-8 counts as U+FFFD.
// O(n times the longest token), which is limited.
class Unigram final : public Tokenizer {
 public:
  static constexpr size_t kMaxTokenBytes = 1024;  // an Error beyond

  explicit Unigram(Vocabulary vocabulary);

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  [[nodiscard]] std::string normalize(std::string_view text) const;
  [[nodiscard]] float score(int32_t id, size_t bytes) const;

  Charsmap charsmap_;
  PieceTrie trie_;
  ByteIds byte_ids_{};
  float unknown_score_ = 0;
  float best_score_ = 0;
};

}  // namespace inferno
