#include "tokenizer/piece_trie.h"

#include <algorithm>
#include <tuple>

namespace inferno {

PieceTrie::PieceTrie(std::vector<Piece> pieces) : nodes_(1) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
  // Level by level: the pieces of a node are next to each other, and have `depth` bytes in common.
  struct Range {
    uint32_t node;
    size_t begin, end;
  };
  std::vector<Range> level = {{0, 0, pieces.size()}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> next;
    for (Range range : level) {
      while (range.begin < range.end && pieces[range.begin].text.size() == depth) {
        if (depth > 0 && nodes_[range.node].id == kNone) nodes_[range.node].id = pieces[range.begin].id;
        ++range.begin;
      }
      nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
      while (range.begin < range.end) {
        const char byte = pieces[range.begin].text[depth];
        const size_t begin = range.begin;
        while (range.begin < range.end && pieces[range.begin].text[depth] == byte) ++range.begin;
        next.push_back({static_cast<uint32_t>(nodes_.size()), begin, range.begin});
        ++nodes_[range.node].children;
        nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      }
    }
    level = std::move(next);
  }
}

uint32_t PieceTrie::child(uint32_t node, unsigned char byte) const {
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].children;
  const auto found = std::lower_bound(first, last, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
  return found != last && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
}

}  // namespace inferno
