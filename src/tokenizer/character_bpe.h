// Character-level BPE: characters merge by rank, as in Gemma 4.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/space_marks.h"
#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

// Spaces are written as U+2581. Text is not split into words but at newlines, runs of which merge among themselves. A
// character that is no token is encoded by the byte tokens <0xNN>, as is every byte that is not UTF-8; where the
// vocabulary lacks one, the unknown token is used.
class CharacterBpe final : public Tokenizer {
 public:
  explicit CharacterBpe(Vocabulary vocabulary);

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  TokenIndex index_;  // text of mergeable tokens
  MergeTable merges_;
  ByteIds byte_ids_{};
};

}  // namespace inferno
