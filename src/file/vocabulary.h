// A tokenizer's data as a model file states it, checked but not yet indexed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/string_list.h"

namespace inferno {

class ModelFile;

// The numbers are those of tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct Vocabulary {
  // "gpt2": byte-level BPE; "llama": SentencePiece-style BPE; "gemma4": of characters; "bert": WordPiece; "t5": Unigram
  std::string model;
  std::string pre;               // name of the pre-tokenizer, byte-level BPE only
  StringList tokens;             // (size) text of token i, as stored in the file
  std::vector<float> scores;     // (size) or empty; higher merges first, SentencePiece-style BPE and Unigram only
  std::vector<TokenType> types;  // (size)
  StringList merges;             // "left right", best first, not of SentencePiece-style BPE
  std::optional<int32_t> bos, eos, eot, eom, unknown, padding;
  bool add_bos = false;  // prompts begin with bos
  bool add_eos = false;
  bool add_space_prefix = false;     // text begins with a space of its own, SentencePiece-style BPE and Unigram only
  bool remove_extra_spaces = false;  // at both ends, and all but one of several, Unigram only
  std::string charsmap;              // compiled normalization, Unigram only; empty: none
  bool lowercase = false;            // WordPiece only
  bool strip_accents = false;        // WordPiece only
  std::string chat_template;         // empty: none

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(tokens.size()); }
};

// Missing in a file without a tokenizer.
inline constexpr std::string_view kTokenizerModelKey = "tokenizer.ggml.model";

// Reads the tokenizer.* keys. Whatever does not fit together is an Error that names the key: arrays of different
// lengths, an unknown token type, an id outside the vocabulary, a score that is not a number, an unknown model.
[[nodiscard]] Vocabulary load_vocabulary(const ModelFile& file);

// The same checks for a vocabulary that came from elsewhere; `where` begins each message.
void validate_vocabulary(const Vocabulary& vocabulary, const std::string& where);

}  // namespace inferno
