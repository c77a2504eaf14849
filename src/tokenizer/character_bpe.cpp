#include "tokenizer/character_bpe.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "tokenizer/merge_symbols.h"

namespace inferno {

CharacterBpe::CharacterBpe(Vocabulary vocabulary)
    : Tokenizer(std::move(vocabulary)),
      index_(this->vocabulary().tokens.size()),
      merges_(this->vocabulary().merges.size()) {
  const Vocabulary& vocab = this->vocabulary();
  read_pieces(vocab, pieces_, byte_ids_);
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    // A user-defined token may be in the merges too; control tokens never come out of plain text.
    const TokenType type = vocab.types[i];
    if (type == TokenType::normal || type == TokenType::undefined || type == TokenType::user_defined) {
      index_.insert(vocab.tokens[i], static_cast<int32_t>(i));
    }
  }
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const std::string_view merge = vocab.merges[rank];
    const size_t space = merge.find(' ');
    const std::optional<int32_t> left = index_.find(merge.substr(0, space));
    const std::optional<int32_t> right = index_.find(merge.substr(space + 1));
    const std::optional<int32_t> merged =
        index_.find(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
    if (left && right && merged) merges_.insert(*left, *right, {static_cast<uint32_t>(rank), *merged});
  }
  drop_merges();
}

void CharacterBpe::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string marked = replace_all(text, " ", kSpaceMark);
  SymbolMerger merger;
  std::vector<size_t> begins;  // of characters, and the end
  for (size_t begin = 0; begin < marked.size();) {
    const bool newlines = marked[begin] == '\n';
    size_t end = begin;
    while (end < marked.size() && (marked[end] == '\n') == newlines) ++end;
    merger.clear();
    begins.clear();
    while (begin < end) {
      const std::string_view rest = std::string_view(marked).substr(begin);
      const size_t length = std::max<size_t>(utf8_sequence_length(rest), 1);
      begins.push_back(begin);
      merger.add(index_.find(rest.substr(0, length)).value_or(-1));
      begin += length;
    }
    begins.push_back(end);
    merger.merge(merges_);
    merger.for_each([&](int32_t id, int32_t position) {
      if (id >= 0) {
        ids.push_back(id);
        return;
      }
      const auto i = static_cast<size_t>(position);
      append_bytes(std::string_view(marked).substr(begins[i], begins[i + 1] - begins[i]), vocabulary(), byte_ids_, ids);
    });
  }
}

}  // namespace inferno
