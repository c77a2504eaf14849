// The KV cache: who owns which page.
//
// Memory is cut into pages of kPageSize positions, each holding all kv heads of one layer (see KvLayerView); a page
// number means the same page in every layer. A sequence has a block table of pages. One sequence alone gets pages 0, 1,
// 2, ... in order, so its block table is the identity. Nothing here allocates after construction.
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace inferno {

struct KvConfig {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  DType dtype = DType::f32;
  int32_t max_positions = 0;  // of one sequence
  int32_t max_sequences = 1;
};

class KvCache {
 public:
  // Positions per page: a divisor of the attention span, large enough that a page of one head is a long contiguous
  // read.
  static constexpr int32_t kPageSize = 64;

  KvCache(Backend& backend, const KvConfig& config);

  [[nodiscard]] static uint64_t bytes_needed(const KvConfig& config);
  [[nodiscard]] const KvConfig& config() const { return config_; }
  [[nodiscard]] KvLayerView layer(int32_t index) const;
  [[nodiscard]] int32_t max_pages() const { return max_pages_; }
  [[nodiscard]] int32_t free_pages() const { return static_cast<int32_t>(free_.size()); }

  // Makes room for `length` positions of a sequence (0 .. max_sequences - 1), or shortens it. False, with nothing
  // changed, when the sequence may not be that long or no pages are left.
  [[nodiscard]] bool resize(int32_t sequence, int32_t length);
  [[nodiscard]] int32_t length(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)].length; }
  [[nodiscard]] std::span<const int32_t> pages(int32_t sequence) const;
  // Where the key and value of a position go.
  [[nodiscard]] int32_t slot(int32_t sequence, int32_t position) const;

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int32_t length = 0;
  };

  KvConfig config_;
  int32_t max_pages_;           // of one sequence
  std::vector<Buffer> memory_;  // per layer: keys, then values
  int64_t layer_bytes_;         // of the keys of one layer
  std::vector<int32_t> free_;   // the next page to give out is last
  std::vector<Sequence> sequences_;
};

}  // namespace inferno
