#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"

namespace inferno {

namespace {

struct Symbol {
  size_t begin;  // in the text
  size_t size;   // 0: merged into the symbol before it
  int32_t id;    // -1: a character that is no token
  int32_t previous;
  int32_t next;  // -1: the last
};

struct Candidate {
  float score;
  int32_t position;  // of the left symbol
  size_t size;       // of both symbols when the candidate was made: when it has changed, the candidate is void
  int32_t merged;
};

// The highest score first; of equals the leftmost.
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.score != b.score ? a.score < b.score : a.position > b.position;
  }
};

std::vector<Symbol> split_characters(std::string_view text, const TokenIndex& index) {
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = std::max<size_t>(utf8_sequence_length(text.substr(begin)), 1);
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({begin, length, index.find(text.substr(begin, length)).value_or(-1), position - 1, position + 1});
    begin += length;
  }
  symbols.back().next = -1;
  return symbols;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(Vocabulary vocabulary)
    : Tokenizer(std::move(vocabulary)), index_(this->vocabulary().tokens.size()) {
  const Vocabulary& vocab = this->vocabulary();
  read_pieces(vocab, pieces_, byte_ids_);
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const TokenType type = vocab.types[i];
    if (type == TokenType::normal || type == TokenType::undefined)
      index_.insert(vocab.tokens[i], static_cast<int32_t>(i));
  }
}

void SentencePieceBpe::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::string marked(vocabulary().add_space_prefix ? kSpaceMark : std::string_view());
  marked += replace_all(text, " ", kSpaceMark);
  std::vector<Symbol> symbols = split_characters(marked, index_);
  std::vector<Candidate> heap;

  const auto push = [&](int32_t position) {
    const Symbol& left = symbols[static_cast<size_t>(position)];
    const size_t size = left.size + symbols[static_cast<size_t>(left.next)].size;
    const std::optional<int32_t> merged = index_.find(std::string_view(marked).substr(left.begin, size));
    if (!merged) return;
    heap.push_back({vocabulary().scores[static_cast<size_t>(*merged)], position, size, *merged});
    std::push_heap(heap.begin(), heap.end(), Later());
  };
  for (int32_t position = 0; symbols[static_cast<size_t>(position)].next >= 0; ++position) push(position);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (left.size + right.size != best.size) continue;
    left.size = best.size;
    left.id = best.merged;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(best.position);
  }
  for (int32_t position = 0; position >= 0; position = symbols[static_cast<size_t>(position)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(position)];
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
    } else {
      append_bytes(std::string_view(marked).substr(symbol.begin, symbol.size), vocabulary(), byte_ids_, ids);
    }
  }
}

}  // namespace inferno
