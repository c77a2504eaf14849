#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;
constexpr size_t kMaxAddedBytes = size_t{1} << 20;

unsigned char byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

AddedTokens::AddedTokens(const Vocabulary& vocabulary) {
  size_t bytes = 0;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.types[static_cast<size_t>(id)];
    if (type != TokenType::control && type != TokenType::user_defined && type != TokenType::unknown) continue;
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(id)];
    if (text.empty()) continue;
    if (text.size() > kMaxAddedTokenBytes) {
      fail("tokenizer.ggml.tokens[{}] is an added token of {} bytes (\"{}\"); at most {} are supported", id,
           text.size(), printable(text, 20), kMaxAddedTokenBytes);
    }
    bytes += text.size();
    if (bytes > kMaxAddedBytes) fail("the added tokens have more than {} bytes of text in all", kMaxAddedBytes);
    entries_.push_back({.text = text, .id = id});
  }
  // string_view compares bytes as unsigned, the order that match_at relies on.
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
  const auto same_text = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_text), entries_.end());
  link();
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

// In sorted order an entry comes after those it begins with, and nothing but their like is between them.
void AddedTokens::link() {
  int32_t parent = -1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    while (parent >= 0 && !entry.text.starts_with(entries_[static_cast<size_t>(parent)].text)) {
      parent = entries_[static_cast<size_t>(parent)].parent;
    }
    entry.parent = entry.jump = parent;
    if (parent >= 0) {
      const Entry& above = entries_[static_cast<size_t>(parent)];
      entry.depth = above.depth + 1;
      // Jumps of equal length join into one of twice the length.
      if (above.jump >= 0) {
        const Entry& far = entries_[static_cast<size_t>(above.jump)];
        const int32_t farther = far.jump >= 0 ? entries_[static_cast<size_t>(far.jump)].depth : -1;
        if (above.depth - far.depth == far.depth - farther) entry.jump = far.jump;
      }
    }
    parent = static_cast<int32_t>(i);
  }
}

// The last entry that does not sort after the text begins with every entry that the text begins with: those are among
// it and its parents, and the longest of them is no longer than what the two have in common.
AddedTokens::Match AddedTokens::match_at(std::string_view text, size_t begin) const {
  const unsigned char first = byte_at(text, begin);
  const std::string_view rest = text.substr(begin, kMaxAddedTokenBytes);
  const auto low = entries_.begin() + first_byte_[first];
  const auto after = std::upper_bound(low, entries_.begin() + first_byte_[first + 1], rest,
                                      [](std::string_view t, const Entry& e) { return t < e.text; });
  if (after == low) return {begin, 0, -1};
  const std::string_view nearest = std::prev(after)->text;
  const auto common = static_cast<size_t>(std::ranges::mismatch(nearest, rest).in1 - nearest.begin());
  auto entry = static_cast<int32_t>(std::prev(after) - entries_.begin());
  while (entry >= 0 && length(entry) > common) {
    const Entry& e = entries_[static_cast<size_t>(entry)];
    entry = e.jump >= 0 && length(e.jump) > common ? e.jump : e.parent;
  }
  if (entry < 0) return {begin, 0, -1};
  return {begin, length(entry), entries_[static_cast<size_t>(entry)].id};
}

}  // namespace inferno
