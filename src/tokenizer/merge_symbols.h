// Neighbours that merge by rank: what tokenizers with a list of merges share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tokenizer/token_index.h"

namespace inferno {

struct MergeSymbol {
  int32_t id;  // -1: no token, which never merges; or merged into the symbol before it, and then in no list
  int32_t previous;
  int32_t next;  // -1: the last
};

// Symbols of one word, in a list from position 0 on. Reused from word to word, so that encoding does not allocate per
// word.
class SymbolMerger {
 public:
  void clear() { symbols_.clear(); }
  void add(int32_t id) {
    const auto position = static_cast<int32_t>(symbols_.size());
    if (position > 0) symbols_.back().next = position;
    symbols_.push_back({id, position - 1, -1});
  }
  // The best rank merges first; of equals the leftmost.
  void merge(const MergeTable& merges) {
    if (symbols_.empty()) return;
    heap_.clear();
    for (int32_t position = 0; symbols_[static_cast<size_t>(position)].next >= 0; ++position) {
      const Candidate candidate = candidate_at(merges, position);
      if (candidate.merged >= 0) heap_.push_back(candidate);
    }
    std::make_heap(heap_.begin(), heap_.end(), Later());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), Later());
      const Candidate best = heap_.back();
      heap_.pop_back();
      MergeSymbol& left = symbols_[static_cast<size_t>(best.position)];
      if (left.id != best.left || left.next < 0) continue;
      MergeSymbol& right = symbols_[static_cast<size_t>(left.next)];
      if (right.id != best.right) continue;
      left.id = best.merged;
      right.id = -1;
      left.next = right.next;
      if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = best.position;
      if (left.previous >= 0) push(merges, left.previous);
      if (left.next >= 0) push(merges, best.position);
    }
  }
  // Calls f(id, position) for what is left; the position is that of its first symbol.
  template <typename F>
  void for_each(F f) const {
    for (int32_t position = symbols_.empty() ? -1 : 0; position >= 0;
         position = symbols_[static_cast<size_t>(position)].next) {
      f(symbols_[static_cast<size_t>(position)].id, position);
    }
  }

 private:
  struct Candidate {
    uint32_t rank;
    int32_t position;  // of the left symbol
    int32_t left;      // ids when the candidate was made: when either has changed, it is void
    int32_t right;
    int32_t merged;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    }
  };
  [[nodiscard]] Candidate candidate_at(const MergeTable& merges, int32_t position) const {
    const MergeSymbol& symbol = symbols_[static_cast<size_t>(position)];
    const int32_t right = symbols_[static_cast<size_t>(symbol.next)].id;
    const Merge merge = merges.find(symbol.id, right);
    return {merge.rank, position, symbol.id, right, merge.id};
  }
  void push(const MergeTable& merges, int32_t position) {
    const Candidate candidate = candidate_at(merges, position);
    if (candidate.merged < 0) return;
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), Later());
  }

  std::vector<MergeSymbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace inferno
