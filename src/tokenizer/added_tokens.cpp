#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;

unsigned char byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

AddedTokens::AddedTokens(const Vocabulary& vocabulary) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.types[static_cast<size_t>(id)];
    if (type != TokenType::control && type != TokenType::user_defined && type != TokenType::unknown) continue;
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(id)];
    if (text.empty()) continue;
    if (text.size() > kMaxAddedTokenBytes) {
      fail("tokenizer.ggml.tokens[{}] is an added token of {} bytes (\"{}\"); at most {} are supported", id,
           text.size(), printable(text, 20), kMaxAddedTokenBytes);
    }
    entries_.push_back({text, id});
  }
  // string_view compares bytes as unsigned, the order that match_at relies on.
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
  const auto same_text = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_text), entries_.end());
  for (const Entry& entry : entries_) ++first_byte_[byte_at(entry.text, 0) + 1];
  for (size_t b = 0; b < 256; ++b) first_byte_[b + 1] += first_byte_[b];
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  if (entries_.empty()) return {text.size(), 0, -1};
  for (size_t begin = from; begin < text.size(); ++begin) {
    const unsigned char first = byte_at(text, begin);
    if (first_byte_[first] == first_byte_[first + 1]) continue;
    const Match match = match_at(text, begin);
    if (match.length > 0) return match;
  }
  return {text.size(), 0, -1};
}

// Narrows the sorted entries byte by byte; an entry that ends is the longest match so far.
AddedTokens::Match AddedTokens::match_at(std::string_view text, size_t begin) const {
  const unsigned char first = byte_at(text, begin);
  auto low = entries_.begin() + first_byte_[first];
  auto high = entries_.begin() + first_byte_[first + 1];
  Match best{begin, 0, -1};
  for (size_t depth = 1;; ++depth) {
    if (low->text.size() == depth) {
      best = {begin, depth, low->id};
      ++low;
    }
    if (low == high || begin + depth == text.size()) return best;
    const unsigned char next = byte_at(text, begin + depth);
    low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e.text, depth) < next; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e.text, depth) <= next; });
    if (low == high) return best;
  }
}

}  // namespace inferno
