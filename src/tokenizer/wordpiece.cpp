#include "tokenizer/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "tokenizer/normalize.h"
#include "tokenizer/unknown_token.h"

namespace inferno {

namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxWordCharacters = 100;
constexpr int32_t kReplacement = 0xFFFD;
constexpr int32_t kDottedI = 0x130;  // the one character whose lower case is two: i and U+0307

bool is_space(int32_t c) {
  if (c == '\t' || c == '\n' || c == '\r' || c == ' ') return true;
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_dropped(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return c == kReplacement || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool is_punctuation(int32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// The blocks that the original treats as words of one character each; 2B820 to 2B91F are not among them there.
bool is_ideograph(int32_t c) {
  constexpr std::array<std::pair<int32_t, int32_t>, 7> kBlocks = {{{0x3400, 0x4DBF},
                                                                   {0x4E00, 0x9FFF},
                                                                   {0xF900, 0xFAFF},
                                                                   {0x20000, 0x2A6DF},
                                                                   {0x2A700, 0x2B81F},
                                                                   {0x2B920, 0x2CEAF},
                                                                   {0x2F800, 0x2FA1F}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(), [&](const auto& b) { return c >= b.first && c <= b.second; });
}

void append(int32_t character, std::string& out) {
  std::array<utf8proc_uint8_t, 4> encoded{};
  const utf8proc_ssize_t length = utf8proc_encode_char(character, encoded.data());
  out.append(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length));
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }));
}

// Valid characters that stay, ideographs with a space on both sides.
std::string clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = utf8_sequence_length(text.substr(begin));
    int32_t c = kReplacement;
    if (length > 0) {
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + begin,
                       static_cast<utf8proc_ssize_t>(length), &c);
    }
    if (is_space(c)) {
      out += ' ';
    } else if (!is_dropped(c)) {
      const bool apart = is_ideograph(c);
      if (apart) out += ' ';
      out.append(text.substr(begin, length));
      if (apart) out += ' ';
    }
    begin += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary)
    : Tokenizer(std::move(vocabulary)),
      begins_(this->vocabulary().tokens.size()),
      goes_on_(this->vocabulary().tokens.size()) {
  const Vocabulary& vocab = this->vocabulary();
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const std::string_view text = vocab.tokens[i];
    const bool begins = text.starts_with(kWordMark);
    const bool plain = vocab.types[i] == TokenType::normal || vocab.types[i] == TokenType::undefined;
    if (plain && begins) {
      pieces_.append(std::string(" ").append(text.substr(kWordMark.size())));
      begins_.insert(text.substr(kWordMark.size()), static_cast<int32_t>(i));
    } else {
      pieces_.append(text);
      if (plain) goes_on_.insert(text, static_cast<int32_t>(i));
    }
  }
}

void WordPiece::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int32_t> characters;
  const std::string cleaned = clean(text);
  decompose_nfd(vocabulary().strip_accents ? std::string_view(cleaned) : std::string_view(), characters);
  if (!vocabulary().strip_accents) {
    for (size_t begin = 0; begin < cleaned.size();) {
      int32_t c = 0;
      begin += static_cast<size_t>(utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(cleaned.data()) + begin,
                                                    static_cast<utf8proc_ssize_t>(cleaned.size() - begin), &c));
      characters.push_back(c);
    }
  }
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) encode_word(word, ids);
    word.clear();
  };
  for (const int32_t c : characters) {
    if (vocabulary().strip_accents && utf8proc_category(c) == UTF8PROC_CATEGORY_MN) continue;
    if (is_space(c)) {
      flush();
      continue;
    }
    const bool alone = is_punctuation(c);
    if (alone) flush();
    if (vocabulary().lowercase && c == kDottedI) {
      append('i', word);
      append(0x307, word);
    } else {
      append(vocabulary().lowercase ? utf8proc_tolower(c) : c, word);
    }
    if (alone) flush();
  }
  flush();
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  std::string_view rest = word;
  if (count_characters(word) > kMaxWordCharacters) rest = {};
  while (!rest.empty()) {
    const TokenIndex& index = rest.size() == word.size() ? begins_ : goes_on_;
    std::optional<int32_t> found;
    size_t length = std::min(rest.size(), index.longest());
    for (; length > 0; --length) {
      found = index.find(rest.substr(0, length));
      if (found) break;
    }
    if (!found) {
      ids.resize(before);
      break;
    }
    ids.push_back(*found);
    rest.remove_prefix(length);
  }
  if (ids.size() == before) ids.push_back(unknown_token(vocabulary(), word));
}

}  // namespace inferno
