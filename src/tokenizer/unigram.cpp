#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/space_marks.h"

namespace inferno {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr float kUnknownPenalty = 10;

// The best way to cut the text up to a place.
struct Best {
  float score = 0;
  int32_t id = PieceTrie::kNone;  // of the last token; kNone: an unknown character
  size_t begin = SIZE_MAX;        // where that one begins; SIZE_MAX: no way leads here
};

}  // namespace

Unigram::Unigram(Vocabulary vocabulary) : Tokenizer(std::move(vocabulary)), charsmap_(this->vocabulary().charsmap) {
  const Vocabulary& vocab = this->vocabulary();
  read_pieces(vocab, pieces_, byte_ids_);
  std::vector<PieceTrie::Piece> pieces;
  float least = std::numeric_limits<float>::max();
  float most = std::numeric_limits<float>::lowest();
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const std::string_view text = vocab.tokens[i];
    const auto id = static_cast<int32_t>(i);
    const TokenType type = vocab.types[i];
    if (type == TokenType::normal || type == TokenType::undefined) {
      least = std::min(least, vocab.scores[i]);
      most = std::max(most, vocab.scores[i]);
    } else if (type != TokenType::user_defined) {
      continue;
    }
    if (text.empty()) continue;
    if (text.size() > kMaxTokenBytes) {
      fail("tokenizer.ggml.tokens[{}] has {} bytes (\"{}\"); at most {} are supported", i, text.size(),
           printable(text, 20), kMaxTokenBytes);
    }
    pieces.push_back({text, id});
  }
  trie_ = PieceTrie(std::move(pieces));
  unknown_score_ = least - kUnknownPenalty;
  best_score_ = most;
}

std::string Unigram::normalize(std::string_view text) const {
  const bool merge = vocabulary().remove_extra_spaces;
  std::string out(vocabulary().add_space_prefix && !text.empty() ? kSpaceMark : std::string_view());
  bool after_space = merge;  // spaces that follow are dropped
  while (!text.empty()) {
    const Charsmap::Match match = charsmap_.find(text);
    size_t length = match.length;
    std::string_view piece = match.replacement;
    if (length == 0) {
      length = utf8_sequence_length(text);
      piece = length == 0 ? kReplacement : text.substr(0, length);
      length = std::max<size_t>(length, 1);
    }
    text.remove_prefix(length);
    while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
    if (piece.empty()) continue;
    out += replace_all(piece, " ", kSpaceMark);
    after_space = merge && piece.ends_with(' ');
  }
  while (merge && out.ends_with(kSpaceMark)) out.resize(out.size() - kSpaceMark.size());
  return out;
}

float Unigram::score(int32_t id, size_t bytes) const {
  const auto i = static_cast<size_t>(id);
  if (vocabulary().types[i] != TokenType::user_defined) return vocabulary().scores[i];
  // Better than any other way to cut the same stretch.
  return static_cast<float>(static_cast<double>(static_cast<float>(bytes) * best_score_) - 0.1);
}

void Unigram::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string normalized = normalize(text);
  const std::string_view all = normalized;
  std::vector<Best> best(all.size() + 1);
  best[0].begin = 0;
  for (size_t begin = 0; begin < all.size();) {
    const float here = best[begin].score;
    const size_t character = std::max<size_t>(utf8_sequence_length(all.substr(begin)), 1);
    bool covered = false;
    const auto offer = [&](size_t length, int32_t id, float added) {
      Best& there = best[begin + length];
      const float sum = added + here;
      if (there.begin == SIZE_MAX || sum > there.score) there = {sum, id, begin};
    };
    trie_.each_prefix(all.substr(begin), [&](size_t length, int32_t id) {
      offer(length, id, score(id, length));
      covered = covered || length == character;
    });
    if (!covered) offer(character, PieceTrie::kNone, unknown_score_);
    begin += character;
  }
  std::vector<std::pair<size_t, int32_t>> cuts;  // from the end: where a token begins, and which it is
  for (size_t end = all.size(); end > 0; end = best[end].begin) cuts.emplace_back(best[end].begin, best[end].id);
  for (size_t i = cuts.size(); i-- > 0;) {
    if (cuts[i].second != PieceTrie::kNone) {
      ids.push_back(cuts[i].second);
      continue;
    }
    const size_t begin = cuts[i].first;
    while (i > 0 && cuts[i - 1].second == PieceTrie::kNone) --i;
    const size_t end = i == 0 ? all.size() : cuts[i - 1].first;
    append_bytes(all.substr(begin, end - begin), vocabulary(), byte_ids_, ids);
  }
}

}  // namespace inferno
