// SentencePiece-style BPE: characters merge by the score of the token they form.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/space_marks.h"
#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Spaces are written as U+2581. A character that is no token is encoded by the byte tokens <0xNN>, as is every byte
// that is not UTF-8; where the vocabulary lacks one, the unknown token is used, or nothing where there is none.
class SentencePieceBpe final : public Tokenizer {
 public:
  explicit SentencePieceBpe(Vocabulary vocabulary);

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  TokenIndex index_;  // text of normal tokens
  ByteIds byte_ids_{};
};

}  // namespace inferno
