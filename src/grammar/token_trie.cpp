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

}  // namespace

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

  nodes_.push_back({.end = 0, .tokens = 0, .depth = 0, .byte = 0});
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
                        .byte = static_cast<uint8_t>(text[i])});
    }
    max_depth_ = std::max(max_depth_, static_cast<uint32_t>(text.size()));
    tokens_.push_back(id);
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()),
                    .tokens = static_cast<uint32_t>(tokens_.size()),
                    .depth = 0,
                    .byte = 0});
}

}  // namespace inferno::grammar
