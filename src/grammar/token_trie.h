// The tokens of a vocabulary by their bytes, as a trie that is walked front to back.
//
// Nodes are in the order of a depth-first walk: the children of a node follow it, and `end` is where its subtree ends.
// Control tokens, and others that stand for no text, have their name behind a byte that no text has (kControlByte): a
// grammar that does not ask for it never has them. End tokens are kept apart; tokens of 64 KiB and more are not in it.
// Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace inferno {
class Tokenizer;
}

namespace inferno::grammar {

// Kinds of bytes, as bits: where a text may go on with all bytes of some kinds, subtrees of them need no walk.
enum ByteKind : uint16_t {
  kLowerCase = 1,
  kUpperCase = 2,
  kDigit = 4,
  kSpace = 8,
  kPunctuation = 16,  // but the next two
  kQuote = 32,
  kBackslash = 64,
  kControl = 128,
  kMultibyte = 256,  // of a character beyond ASCII, where it belongs
  kBroken = 512,     // of none
};
[[nodiscard]] ByteKind ascii_kind(uint8_t byte);

// Some tokens of a vocabulary as a tree.
class TokenTree {
 public:
  struct Node {
    uint32_t end;     // the first node after its subtree
    uint32_t tokens;  // in the order of nodes: those of this node begin here, those of the next one end them
    uint16_t depth;   // bytes up to and with this node; 0: the root
    uint16_t height;  // bytes below it, at most
    uint16_t below;   // kinds of bytes in its subtree, without its own
    uint8_t byte;
    bool at_char;  // a character ends with this byte, if one began with the token
  };

  TokenTree() = default;
  // ids: of pieces that are not empty.
  TokenTree(std::span<const std::string_view> pieces, std::vector<int32_t> ids);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - 1); }  // nodes, with the root
  [[nodiscard]] const Node& node(uint32_t i) const { return nodes_[i]; }
  [[nodiscard]] std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].tokens, nodes_[node + 1].tokens - nodes_[node].tokens);
  }
  // The node behind that byte; 0: there is none.
  [[nodiscard]] uint32_t child(uint32_t node, uint8_t byte) const;
  // Of the whole subtree.
  [[nodiscard]] std::span<const int32_t> tokens_below(uint32_t node) const {
    const uint32_t end = nodes_[nodes_[node].end].tokens;
    return std::span(tokens_).subspan(nodes_[node].tokens, end - nodes_[node].tokens);
  }
  [[nodiscard]] uint32_t max_depth() const { return nodes_[0].height; }

 private:
  void build(std::span<const std::string_view> pieces, std::vector<int32_t> ids);
  void find_kinds();

  std::vector<Node> nodes_;                  // the last one is only an end
  std::array<uint32_t, 256> children_ = {};  // of the root, which has the most
  std::vector<int32_t> tokens_;
};

class TokenTrie {
 public:
  // Most tokens are plain: whole characters a JSON string has as they are, and not many. Where a text may go on with
  // any of these, or so many, its mask is theirs and what the tree of the others adds.
  static constexpr uint16_t kPlainKinds = kLowerCase | kUpperCase | kDigit | kSpace | kPunctuation | kMultibyte;
  static constexpr uint16_t kPlainBytes = 32;  // at most
  static constexpr char kControlByte = '\xFF';

  explicit TokenTrie(const Tokenizer& tokenizer);
  // pieces[id]: the bytes of a token, empty where it may never be drawn.
  TokenTrie(std::span<const std::string_view> pieces, std::vector<int32_t> end_tokens);

  [[nodiscard]] int32_t vocabulary() const { return vocabulary_; }
  [[nodiscard]] size_t words() const { return static_cast<size_t>(vocabulary_ + 31) / 32; }  // of a bitset of tokens
  [[nodiscard]] std::span<const int32_t> end_tokens() const { return end_tokens_; }
  [[nodiscard]] std::string_view bytes(int32_t token) const;  // empty: may never be drawn
  [[nodiscard]] const TokenTree& all() const { return all_; }
  [[nodiscard]] const TokenTree& not_plain() const { return not_plain_; }
  // A bitset of the plain tokens of up to so many characters, at most kPlainBytes.
  [[nodiscard]] std::span<const uint32_t> plain(size_t characters) const {
    return std::span(plain_).subspan(characters * words(), words());
  }
  [[nodiscard]] uint32_t max_depth() const { return all_.max_depth(); }

 private:
  int32_t vocabulary_ = 0;
  std::vector<int32_t> end_tokens_;
  std::vector<char> text_;       // the bytes of all tokens
  std::vector<uint32_t> begin_;  // (vocabulary + 1) in text_
  TokenTree all_, not_plain_;
  std::vector<uint32_t> plain_;  // [kPlainBytes + 1][words]
};

}  // namespace inferno::grammar
