#include "tokenizer/byte_bpe.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/merge_symbols.h"
#include "tokenizer/normalize.h"

namespace inferno {

namespace {

// Vocabularies are stored as text, so each byte is written as a printable character: itself where it is one in Latin-1,
// else one from U+0100 on, in order.
struct ByteAlphabet {
  static constexpr int kLetters = 0x144;    // the last is U+0143
  std::array<int16_t, kLetters> byte_of{};  // -1: no letter of the alphabet

  constexpr ByteAlphabet() {
    for (int16_t& byte : byte_of) byte = -1;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      byte_of[static_cast<size_t>(printable ? byte : next++)] = static_cast<int16_t>(byte);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

// The bytes that a token's text spells; false when the text has other characters than the alphabet's.
bool decode_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0 || length > 2) return false;
    const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned letter = length == 1 ? at(0) : (at(0) & 0x1FU) << 6 | (at(1) & 0x3FU);
    if (letter >= ByteAlphabet::kLetters || kAlphabet.byte_of[letter] < 0) return false;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[letter]));
    text.remove_prefix(length);
  }
  return true;
}

bool is_added(TokenType type) {
  return type == TokenType::control || type == TokenType::user_defined || type == TokenType::unknown;
}

// A user-defined token may be in the merges too; control tokens never come out of plain text.
bool is_mergeable(TokenType type) {
  return type == TokenType::normal || type == TokenType::undefined || type == TokenType::user_defined;
}

}  // namespace

// Reused from word to word, so that encoding does not allocate per word.
struct ByteBpe::Workspace {
  std::vector<std::string_view> words;
  SymbolMerger merger;
};

ByteBpe::ByteBpe(Vocabulary vocabulary)
    : Tokenizer(std::move(vocabulary)),
      pre_tokenizer_(this->vocabulary().pre),
      index_(this->vocabulary().tokens.size()),
      merges_(this->vocabulary().merges.size()) {
  index_tokens();
  index_merges();
  drop_merges();
}

void ByteBpe::index_tokens() {
  const Vocabulary& vocab = vocabulary();
  std::vector<bool> mergeable(vocab.tokens.size());
  std::string bytes;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const std::string_view text = vocab.tokens[i];
    const bool in_alphabet = decode_alphabet(text, bytes);
    // Added tokens are stored as plain text. One that is in the merges too reads the same both ways.
    const bool plain_text = is_added(vocab.types[i]) || !in_alphabet;
    mergeable[i] = in_alphabet && is_mergeable(vocab.types[i]) && (!plain_text || bytes == text);
    pieces_.append(plain_text ? text : std::string_view(bytes));
  }
  // Only now, when pieces_ has stopped growing: the index keeps views into it.
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (mergeable[i]) index_.insert(pieces_[i], static_cast<int32_t>(i));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char as_char = static_cast<char>(byte);
    byte_ids_[static_cast<size_t>(byte)] = index_.find(std::string_view(&as_char, 1)).value_or(-1);
  }
}

void ByteBpe::index_merges() {
  const StringList& merges = vocabulary().merges;
  size_t skipped = 0;
  std::string left_bytes;
  std::string right_bytes;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ');
    std::optional<int32_t> left;
    std::optional<int32_t> right;
    std::optional<int32_t> merged;
    if (decode_alphabet(merge.substr(0, space), left_bytes) && decode_alphabet(merge.substr(space + 1), right_bytes)) {
      left = index_.find(left_bytes);
      right = index_.find(right_bytes);
      merged = index_.find(left_bytes + right_bytes);
    }
    if (left && right && merged) {
      merges_.insert(*left, *right, {static_cast<uint32_t>(rank), *merged});
    } else {
      ++skipped;
    }
  }
  if (skipped > 0) log(LogLevel::debug, "tokenizer: {} of {} merges name no tokens", skipped, merges.size());
}

void ByteBpe::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  Workspace work;
  while (!text.empty()) {
    size_t valid = 0;
    while (valid < text.size()) {
      const size_t length = utf8_sequence_length(text.substr(valid));
      if (length == 0) break;
      valid += length;
    }
    if (valid > 0) encode_valid(text.substr(0, valid), work, ids);
    size_t end = valid;
    while (end < text.size() && utf8_sequence_length(text.substr(end)) == 0) ++end;
    if (end > valid) encode_word(text.substr(valid, end - valid), work, ids);
    text.remove_prefix(end);
  }
}

void ByteBpe::encode_valid(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  std::string normalized;
  if (pre_tokenizer_.wants_nfc()) {
    normalized = normalize_nfc(text);
    text = normalized;
  }
  pre_tokenizer_.split(text, work.words);
  for (const std::string_view word : work.words) encode_word(word, work, ids);
}

void ByteBpe::encode_word(std::string_view word, Workspace& work, std::vector<int32_t>& ids) const {
  if (pre_tokenizer_.ignores_merges()) {
    const std::optional<int32_t> whole = index_.find(word);
    if (whole && type(*whole) != TokenType::user_defined) {
      ids.push_back(*whole);
      return;
    }
  }
  SymbolMerger& merger = work.merger;
  merger.clear();
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    // The unknown token of such vocabularies is a control token, which text must not become.
    if (id < 0) fail("the vocabulary has no token for \"{}\"", printable({&byte, 1}));
    merger.add(id);
  }
  merger.merge(merges_);
  merger.for_each([&](int32_t id, int32_t /*position*/) { ids.push_back(id); });
}

}  // namespace inferno
