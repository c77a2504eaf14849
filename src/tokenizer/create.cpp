// Which tokenizer a vocabulary needs. A build without PCRE2 and utf8proc has create_none.cpp instead of this file.
#include "file/model_file.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/character_bpe.h"
#include "tokenizer/sentencepiece_bpe.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace inferno {

std::unique_ptr<const Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  validate_vocabulary(vocabulary, "vocabulary");
  if (vocabulary.model == "llama") return std::make_unique<const SentencePieceBpe>(std::move(vocabulary));
  if (vocabulary.model == "gemma4") return std::make_unique<const CharacterBpe>(std::move(vocabulary));
  if (vocabulary.model == "bert") return std::make_unique<const WordPiece>(std::move(vocabulary));
  if (vocabulary.model == "t5") return std::make_unique<const Unigram>(std::move(vocabulary));
  return std::make_unique<const ByteBpe>(std::move(vocabulary));
}

std::unique_ptr<const Tokenizer> Tokenizer::load(const ModelFile& file) {
  return file.has_vocabulary() ? create(file.vocabulary()) : nullptr;
}

}  // namespace inferno
