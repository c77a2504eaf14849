// Which tokens a text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace inferno {

// Immutable once built; a node's children are next to each other, by byte.
class PieceTrie {
 public:
  struct Piece {
    std::string_view text;  // not empty; kept only while the trie is made
    int32_t id;
  };
  static constexpr int32_t kNone = -1;

  PieceTrie() : nodes_(1) {}
  // Of equal texts the first stays.
  explicit PieceTrie(std::vector<Piece> pieces);

  // Calls f(length, id) for every token that `text` begins with, the shortest first.
  template <typename F>
  void each_prefix(std::string_view text, F&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id != kNone) f(i + 1, nodes_[node].id);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t id = kNone;
  };
  // 0: there is none.
  [[nodiscard]] uint32_t child(uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;  // the root first
};

}  // namespace inferno
