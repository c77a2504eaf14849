#include "grammar/token_trie.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/tokenizer.h"

namespace inferno::grammar {
namespace {

struct Pieces {
  std::vector<std::string_view> of;  // [token]
  std::deque<std::string> made;      // those that are no piece of the tokenizer
};

Pieces drawable_pieces(const Tokenizer& tokenizer) {
  Pieces pieces{.of = std::vector<std::string_view>(static_cast<size_t>(tokenizer.vocab_size())), .made = {}};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end_token(id)) continue;
    std::string_view& piece = pieces.of[static_cast<size_t>(id)];
    piece = tokenizer.piece(id);
    const TokenType type = tokenizer.type(id);
    const bool is_text = type == TokenType::normal || type == TokenType::user_defined || type == TokenType::byte;
    const bool has_control_byte = piece.find(TokenTrie::kControlByte) != std::string_view::npos;
    if (is_text && !piece.empty() && !has_control_byte) continue;
    piece = pieces.made.emplace_back(TokenTrie::kControlByte + std::string(piece));
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

// The characters of a plain token; empty: it is none.
std::optional<size_t> plain_characters(std::string_view piece) {
  if (piece.size() > TokenTrie::kPlainBytes) return std::nullopt;
  Utf8State state;
  size_t characters = 0;
  for (const char byte : piece) {
    if ((state.take(static_cast<uint8_t>(byte)) & TokenTrie::kPlainKinds) == 0) return std::nullopt;
    if (state.left == 0) ++characters;
  }
  return state.left == 0 ? std::optional(characters) : std::nullopt;
}

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

// ---- the tree

TokenTree::TokenTree(std::span<const std::string_view> pieces, std::vector<int32_t> ids) {
  build(pieces, std::move(ids));
  find_kinds();
  for (uint32_t i = 1; i < size(); i = nodes_[i].end) children_[nodes_[i].byte] = i;
}

uint32_t TokenTree::child(uint32_t node, uint8_t byte) const {
  if (node == 0) return children_[byte];
  for (uint32_t i = node + 1; i < nodes_[node].end; i = nodes_[i].end) {
    if (nodes_[i].byte == byte) return i;
  }
  return 0;
}

void TokenTree::build(std::span<const std::string_view> pieces, std::vector<int32_t> ids) {
  const auto piece = [&](int32_t id) { return pieces[static_cast<size_t>(id)]; };
  std::ranges::sort(ids, [&](int32_t a, int32_t b) { return piece(a) != piece(b) ? piece(a) < piece(b) : a < b; });
  nodes_.push_back({.end = 0, .tokens = 0, .depth = 0, .height = 0, .below = 0, .byte = 0, .at_char = true});
  std::vector<uint32_t> path = {0};  // the nodes of the token before, from the root
  std::string_view before;
  const auto leave = [&](size_t depth) {
    while (path.size() > depth) {
      Node& node = nodes_[path.back()];
      node.end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
      if (path.empty()) break;
      Node& above = nodes_[path.back()];
      above.height = std::max(above.height, static_cast<uint16_t>(node.height + 1));
    }
  };
  for (const int32_t id : ids) {
    const std::string_view text = piece(id);
    const size_t common = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    leave(common + 1);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .tokens = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(i + 1),
                        .height = 0,
                        .below = 0,
                        .byte = static_cast<uint8_t>(text[i]),
                        .at_char = false});
    }
    tokens_.push_back(id);
    before = text;
  }
  leave(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()),
                    .tokens = static_cast<uint32_t>(tokens_.size()),
                    .depth = 0,
                    .height = 0,
                    .below = 0,
                    .byte = 0,
                    .at_char = false});
}

void TokenTree::find_kinds() {
  std::vector<Utf8State> states(size_t{max_depth()} + 1);
  std::vector<uint16_t> own(nodes_.size());
  for (uint32_t i = 1; i < size(); ++i) {
    Node& node = nodes_[i];
    Utf8State state = states[node.depth - 1U];
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

// ---- the vocabulary

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : TokenTrie(drawable_pieces(tokenizer).of, {tokenizer.end_tokens().begin(), tokenizer.end_tokens().end()}) {}

TokenTrie::TokenTrie(std::span<const std::string_view> pieces, std::vector<int32_t> end_tokens)
    : vocabulary_(static_cast<int32_t>(pieces.size())), end_tokens_(std::move(end_tokens)) {
  plain_.resize((kPlainBytes + 1) * words());
  std::vector<int32_t> ids;
  std::vector<int32_t> not_plain;
  for (int32_t id = 0; id < vocabulary_; ++id) {
    std::string_view piece = pieces[static_cast<size_t>(id)];
    if (piece.size() > UINT16_MAX) piece = {};
    begin_.push_back(static_cast<uint32_t>(text_.size()));
    text_.insert(text_.end(), piece.begin(), piece.end());
    if (piece.empty()) continue;
    ids.push_back(id);
    const std::optional<size_t> characters = plain_characters(piece);
    if (!characters) not_plain.push_back(id);
    for (size_t c = characters.value_or(kPlainBytes + 1); c <= kPlainBytes; ++c) {
      plain_[c * words() + static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
    }
  }
  begin_.push_back(static_cast<uint32_t>(text_.size()));
  all_ = TokenTree(pieces, std::move(ids));
  not_plain_ = TokenTree(pieces, std::move(not_plain));
}

std::string_view TokenTrie::bytes(int32_t token) const {
  const auto i = static_cast<size_t>(token);
  return std::string_view(text_.data(), text_.size()).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

}  // namespace inferno::grammar
