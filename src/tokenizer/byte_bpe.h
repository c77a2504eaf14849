// Byte-level BPE: text is split into words, a word into bytes, and neighbours merge by rank.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Bytes that are not UTF-8 end a word; each longest run of them is a word of its own and merges as any other. A byte
// that the vocabulary lacks (some lack bytes that UTF-8 never uses, or rare control characters) encodes to nothing, as
// in the reference tokenizers; their unknown token is often <|endoftext|>, which would end the text instead. Merges
// whose parts or result are no tokens do not exist.
class ByteBpe final : public Tokenizer {
 public:
  explicit ByteBpe(Vocabulary vocabulary);

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  struct Workspace;
  void index_tokens();
  void index_merges();
  void encode_valid(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, Workspace& work, std::vector<int32_t>& ids) const;

  PreTokenizer pre_tokenizer_;
  TokenIndex index_;  // bytes of mergeable tokens
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary has no token for this byte
};

}  // namespace inferno
