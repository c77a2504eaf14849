// Any text through the shipped vocabularies, and any vocabulary: what is encoded comes back, or is an Error.
#include <fuzzer/FuzzedDataProvider.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/gguf.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace inferno;

// Vocabularies that have a token for every byte.
const std::vector<std::unique_ptr<const Tokenizer>>& shipped() {
  static const std::vector<std::unique_ptr<const Tokenizer>> all = [] {
    std::vector<std::unique_ptr<const Tokenizer>> loaded;
    for (const char* name : {"gpt2", "llama3", "qwen2", "smollm"}) {
      loaded.push_back(
          Tokenizer::load(GgufFile::open(std::string(INFERNO_SOURCE_DIR "/tests/data/vocab/books-") + name + ".gguf")));
    }
    return loaded;
  }();
  return all;
}

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check(const Tokenizer& tokenizer, const std::string& text, bool complete) {
  for (const bool special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = special});
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
    if (complete) require(tokenizer.decode(ids) == text);
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) stream.push(id, streamed);
    stream.finish(streamed);
  }
}

Vocabulary random_vocabulary(FuzzedDataProvider& input) {
  Vocabulary vocabulary;
  vocabulary.model = input.ConsumeBool() ? "gpt2" : "llama";
  vocabulary.pre = input.PickValueInArray({"gpt-2", "llama-bpe", "qwen2", "smollm", "default"});
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (int n = input.ConsumeIntegralInRange(1, 40); n > 0; --n) {
    tokens.push_back(input.ConsumeRandomLengthString(12));
    vocabulary.types.push_back(static_cast<TokenType>(input.ConsumeIntegralInRange(1, 6)));
    vocabulary.scores.push_back(input.ConsumeFloatingPoint<float>());
  }
  for (int n = input.ConsumeIntegralInRange(0, 40); n > 0; --n) merges.push_back(input.ConsumeRandomLengthString(8));
  vocabulary.tokens = StringList(tokens);
  vocabulary.merges = StringList(merges);
  if (input.ConsumeBool()) vocabulary.unknown = input.ConsumeIntegralInRange(-1, 50);
  vocabulary.add_space_prefix = input.ConsumeBool();
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  const auto choice = input.ConsumeIntegralInRange<size_t>(0, shipped().size());
  try {
    if (choice < shipped().size()) {
      constexpr size_t kQwen2 = 2;  // composes characters first: what comes back is the composed text
      check(*shipped()[choice], input.ConsumeRemainingBytesAsString(), choice != kQwen2);
    } else {
      const auto tokenizer = Tokenizer::create(random_vocabulary(input));
      check(*tokenizer, input.ConsumeRemainingBytesAsString(), false);
    }
  } catch (const Error&) {
  }
  return 0;
}
