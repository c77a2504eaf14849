// WordPiece, the tokenizer of BERT and its kin: words, each cut into the longest pieces that are tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Text is cleaned (control characters and what is not UTF-8 vanish, all white space is alike), lower-cased and freed of
// accents where the vocabulary says so, and split at white space, at punctuation and around ideographs. A word that
// cannot be cut into tokens, or has more than 100 characters, is the unknown token. So much of a text is lost: decode()
// gives back its tokens' texts, each word after a space.
//
// In files a token that begins a word begins with U+2581; one that goes on has no mark.
class WordPiece final : public Tokenizer {
 public:
  explicit WordPiece(Vocabulary vocabulary);

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  TokenIndex begins_;  // text after the mark
  TokenIndex goes_on_;
};

}  // namespace inferno
