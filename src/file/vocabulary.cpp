#include "file/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "file/model_file.h"

namespace inferno {

namespace {

// Pre-tokenizers of models whose texts begin with BOS, whether their files say so or not.
constexpr std::string_view kPresWithBos[] = {"llama-bpe", "llama3",   "llama-v3", "falcon3",      "falcon-h1",
                                             "pixtral",   "midm-2.0", "lfm2",     "jina-v5-nano", "tekken"};

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";
constexpr std::array<std::string_view, 5> kModels = {"gpt2", "llama", "gemma4", "bert", "t5"};

struct SpecialId {
  std::string_view key;
  std::optional<int32_t> Vocabulary::* member;
};

constexpr std::array<SpecialId, 6> kSpecialIds = {{
    {"tokenizer.ggml.bos_token_id", &Vocabulary::bos},
    {"tokenizer.ggml.eos_token_id", &Vocabulary::eos},
    {"tokenizer.ggml.eot_token_id", &Vocabulary::eot},
    {"tokenizer.ggml.eom_token_id", &Vocabulary::eom},
    {"tokenizer.ggml.unknown_token_id", &Vocabulary::unknown},
    {"tokenizer.ggml.padding_token_id", &Vocabulary::padding},
}};

// Converters write "no such token" as -1, which an unsigned field shows as its largest value.
bool means_none(int64_t id) {
  return id == -1 || id == std::numeric_limits<uint32_t>::max();
}

std::optional<int32_t> read_special_id(const ModelFile& file, std::string_view key, int32_t vocab_size) {
  const std::optional<int64_t> id = file.find_int(key);
  if (!id || means_none(*id)) return std::nullopt;
  if (*id < 0 || *id >= vocab_size) {
    fail("{}: {} is {}, outside the vocabulary of {} tokens", printable(file.path()), key, *id, vocab_size);
  }
  return static_cast<int32_t>(*id);
}

std::vector<TokenType> read_types(const ModelFile& file, size_t count) {
  const std::optional<std::vector<int64_t>> numbers = file.find_ints(kTypesKey);
  if (!numbers) return std::vector<TokenType>(count, TokenType::normal);
  std::vector<TokenType> types;
  types.reserve(numbers->size());
  for (size_t i = 0; i < numbers->size(); ++i) {
    const int64_t number = (*numbers)[i];
    if (number < 0 || number > static_cast<int64_t>(TokenType::byte)) {
      fail("{}: {}[{}] is {}, which is no token type (0 to 6)", printable(file.path()), kTypesKey, i, number);
    }
    types.push_back(static_cast<TokenType>(number));
  }
  return types;
}

// An array of bytes.
std::string read_charsmap(const ModelFile& file) {
  const std::optional<std::vector<int64_t>> numbers = file.find_ints(kCharsmapKey);
  if (!numbers) return {};
  std::string bytes;
  bytes.reserve(numbers->size());
  for (const int64_t number : *numbers) {
    if (number < -128 || number > 255) fail("{}: {} holds {}, no byte", printable(file.path()), kCharsmapKey, number);
    bytes += static_cast<char>(static_cast<unsigned char>(number));
  }
  return bytes;
}

// WordPiece's special tokens have the same names in every vocabulary; files may leave out their ids.
void find_named_tokens(Vocabulary& vocabulary) {
  const auto find = [&](std::optional<int32_t>& id, std::string_view name) {
    for (int32_t i = 0; !id && i < vocabulary.size(); ++i) {
      if (vocabulary.tokens[static_cast<size_t>(i)] == name) id = i;
    }
  };
  find(vocabulary.bos, "[CLS]");
  find(vocabulary.eos, "[SEP]");
  find(vocabulary.unknown, "[UNK]");
}

// Files leave out what is usual for their kind.
void read_switches(const ModelFile& file, Vocabulary& vocabulary) {
  const bool sentencepiece = vocabulary.model == "llama";
  const bool unigram = vocabulary.model == "t5";
  const bool wordpiece = vocabulary.model == "bert";
  const bool begins =
      std::find(std::begin(kPresWithBos), std::end(kPresWithBos), vocabulary.pre) != std::end(kPresWithBos);
  const auto is_on = [&](const char* key, bool usual) {
    return file.find_bool("tokenizer.ggml." + std::string(key)).value_or(usual);
  };
  vocabulary.add_bos = is_on("add_bos_token", sentencepiece || wordpiece || vocabulary.model == "gemma4" || begins);
  vocabulary.add_eos = is_on("add_eos_token", wordpiece ? is_on("add_sep_token", true) : unigram);
  vocabulary.add_space_prefix = is_on("add_space_prefix", sentencepiece || unigram);
  vocabulary.remove_extra_spaces = is_on("remove_extra_whitespaces", unigram);
  vocabulary.lowercase = is_on("normalizer.lowercase", wordpiece);
  vocabulary.strip_accents = is_on("normalizer.strip_accents", vocabulary.lowercase);
}

}  // namespace

Vocabulary load_vocabulary(const ModelFile& file) {
  const std::string where = printable(file.path());
  if (!file.has_vocabulary()) fail("{}: there is no tokenizer in this file ({} is missing)", where, kTokenizerModelKey);
  Vocabulary vocabulary;
  vocabulary.model = file.get_string(kTokenizerModelKey);
  vocabulary.tokens = file.get_strings(kTokensKey);
  if (vocabulary.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail("{}: {} holds {} tokens, more than ids can count", where, kTokensKey, vocabulary.tokens.size());
  }
  vocabulary.types = read_types(file, vocabulary.tokens.size());
  if (std::optional<std::vector<float>> scores = file.find_floats(kScoresKey)) vocabulary.scores = std::move(*scores);
  if (const StringList* merges = file.find_strings(kMergesKey)) vocabulary.merges = *merges;
  if (const std::string* pre = file.find_string("tokenizer.ggml.pre")) vocabulary.pre = *pre;
  if (const std::string* text = file.find_string("tokenizer.chat_template")) vocabulary.chat_template = *text;
  vocabulary.charsmap = read_charsmap(file);
  read_switches(file, vocabulary);
  validate_vocabulary(vocabulary, where);
  for (const SpecialId& special : kSpecialIds) {
    vocabulary.*special.member = read_special_id(file, special.key, vocabulary.size());
  }
  // Encoders have other names for the tokens at both ends.
  const auto fall_back = [&](std::optional<int32_t>& id, const char* key) {
    if (!id) id = read_special_id(file, key, vocabulary.size());
  };
  fall_back(vocabulary.bos, "tokenizer.ggml.cls_token_id");
  fall_back(vocabulary.eos, "tokenizer.ggml.seperator_token_id");
  if (vocabulary.model == "bert") find_named_tokens(vocabulary);
  return vocabulary;
}

void validate_vocabulary(const Vocabulary& vocabulary, const std::string& where) {
  const size_t count = vocabulary.tokens.size();
  if (std::find(kModels.begin(), kModels.end(), vocabulary.model) == kModels.end()) {
    fail("{}: {} \"{}\" is not supported (supported: gpt2, llama, gemma4, bert, t5)", where, kTokenizerModelKey,
         printable(vocabulary.model));
  }
  if (count == 0) fail("{}: {} is empty", where, kTokensKey);
  if (vocabulary.types.size() != count) {
    fail("{}: {} has {} entries for {} tokens", where, kTypesKey, vocabulary.types.size(), count);
  }
  if (!vocabulary.scores.empty() && vocabulary.scores.size() != count) {
    fail("{}: {} has {} entries for {} tokens", where, kScoresKey, vocabulary.scores.size(), count);
  }
  for (size_t i = 0; i < vocabulary.scores.size(); ++i) {
    if (std::isnan(vocabulary.scores[i])) fail("{}: {}[{}] is not a number", where, kScoresKey, i);
  }
  if ((vocabulary.model == "llama" || vocabulary.model == "t5") && vocabulary.scores.empty()) {
    fail("{}: {} is missing; a tokenizer of model \"{}\" goes by scores", where, kScoresKey, vocabulary.model);
  }
  for (const SpecialId& special : kSpecialIds) {
    const std::optional<int32_t> id = vocabulary.*special.member;
    if (id && (*id < 0 || *id >= vocabulary.size())) {
      fail("{}: {} is {}, outside the vocabulary of {} tokens", where, special.key, *id, count);
    }
  }
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size()) {
      fail("{}: {}[{}] is \"{}\", not two tokens with a space between", where, kMergesKey, i, printable(merge));
    }
  }
}

}  // namespace inferno
