#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "tokenizer/tokenizer.h"

namespace inferno::grammar {
namespace {

std::vector<std::string_view> drawable_pieces(const Tokenizer& tokenizer) {
  std::vector<std::string_view> pieces(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenType type = tokenizer.type(id);
    const bool is_text = type == TokenType::normal || type == TokenType::user_defined || type == TokenType::byte;
    if (is_text && !tokenizer.is_end_token(id)) pieces[static_cast<size_t>(id)] = tokenizer.piece(id);
  }
  return pieces;
}

// Follows UTF-8: how many bytes of a character are still to come, and what the next one may be.
struct Utf8State {
  int left = 0;
  uint8_t low = 0x80, high = 0xBF;
  bool broken = false;

  [[nodiscard]] ByteKind take(uint8_t byte) {
    if (broken) return kBroken;
    if (left > 0) {
      broken = byte < low || byte > high;
      low = 0x80;
      high = 0xBF;
      --left;
      return broken ? kBroken : kMultibyte;
    }
    if (byte < 0x80) return ascii_kind(byte);
    left = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    broken = byte < 0xC2 || byte > 0xF4;
    if (byte == 0xE0) low = 0xA0;
    if (byte == 0xED) high = 0x9F;
    if (byte == 0xF0) low = 0x90;
    if (byte == 0xF4) high = 0x8F;
    return broken ? kBroken : kMultibyte;
  }
};

}  // namespace

ByteKind ascii_kind(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return kLowerCase;
  if (byte >= 'A' && byte <= 'Z') return kUpperCase;
  if (byte >= '0' && byte <= '9') return kDigit;
  if (byte == ' ') return kSpace;
  if (byte == '"') return kQuote;
  if (byte == '\\') return kBackslash;
  return byte < 0x20 || byte == 0x7F ? kControl : kPunctuation;
}

void TokenTrie::find_kinds() {
  std::vector<Utf8State> states(max_depth_ + 1);
  std::vector<uint16_t> own(nodes_.size());
  for (uint32_t i = 1; i < size(); ++i) {
    Node& node = nodes_[i];
    Utf8State state = states[node.depth - 1];
    own[i] = state.take(node.byte);
    node.at_char = !state.broken && state.left == 0;
    states[node.depth] = state;
  }
  // A node that has a kind below it has it for all nodes above, too: the way up ends there.
  std::vector<uint32_t> path;
  for (uint32_t i = 0; i < size(); ++i) {
    while (!path.empty() && nodes_[path.back()].end <= i) path.pop_back();
    for (size_t p = path.size(); p > 0; --p) {
      Node& above = nodes_[path[p - 1]];
      if ((above.below & own[i]) != 0) break;
      above.below |= own[i];
    }
    path.push_back(i);
  }
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : TokenTrie(drawable_pieces(tokenizer), {tokenizer.end_tokens().begin(), tokenizer.end_tokens().end()}) {}

TokenTrie::TokenTrie(std::span<const std::string_view> pieces, std::vector<int32_t> end_tokens)
    : vocabulary_(static_cast<int32_t>(pieces.size())), end_tokens_(std::move(end_tokens)) {
  for (const std::string_view piece : pieces) {
    begin_.push_back(static_cast<uint32_t>(text_.size()));
    text_.insert(text_.end(), piece.begin(), piece.end());
  }
  begin_.push_back(static_cast<uint32_t>(text_.size()));
  build(pieces);
  find_kinds();
}

std::string_view TokenTrie::bytes(int32_t token) const {
  const auto i = static_cast<size_t>(token);
  return std::string_view(text_.data(), text_.size()).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

void TokenTrie::build(std::span<const std::string_view> pieces) {
  std::vector<int32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  const auto piece = [&](int32_t id) { return pieces[static_cast<size_t>(id)]; };
  std::erase_if(order, [&](int32_t id) { return piece(id).empty(); });
  std::ranges::sort(order, [&](int32_t a, int32_t b) { return piece(a) != piece(b) ? piece(a) < piece(b) : a < b; });

  nodes_.push_back({.end = 0, .tokens = 0, .depth = 0, .byte = 0, .at_char = true, .below = 0});
  std::vector<uint32_t> path = {0};  // the nodes of the token before, from the root
  std::string_view before;
  for (const int32_t id : order) {
    const std::string_view text = piece(id);
    const size_t common = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    while (path.size() > common + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .tokens = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint32_t>(i + 1),
                        .byte = static_cast<uint8_t>(text[i]),
                        .at_char = false,
                        .below = 0});
    }
    max_depth_ = std::max(max_depth_, static_cast<uint32_t>(text.size()));
    tokens_.push_back(id);
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()),
                    .tokens = static_cast<uint32_t>(tokens_.size()),
                    .depth = 0,
                    .byte = 0,
                    .at_char = false,
                    .below = 0});
}

}  // namespace inferno::grammar
