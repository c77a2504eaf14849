// For builds without the libraries that tokenizers need: there is none, and models are used by token ids.
#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

std::unique_ptr<const Tokenizer> Tokenizer::create(Vocabulary /*vocabulary*/) {
  fail("this build has no tokenizers");
}

std::unique_ptr<const Tokenizer> Tokenizer::load(const ModelFile& /*file*/) {
  return nullptr;
}

}  // namespace inferno
