// The KV cache: memory for keys and values, cut into pages of kPageSize positions.
//
// A page number means the same page in every layer, where it holds the layer's kv heads (see KvLayerView); layers may
// differ in heads and head sizes. Which page belongs to whom is PagePool's business; a KvSequence is one sequence's
// block table. A sequence alone in a new cache gets pages 0, 1, 2, ...: the identity.
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "kv/page_pool.h"

namespace inferno {

struct KvLayerShape {
  int32_t kv_heads = 0;  // 0: the layer reads the cache of another one
  int32_t head_dim = 0;
  int32_t v_head_dim = 0;  // 0: as head_dim
};

struct KvConfig {
  std::vector<KvLayerShape> layers;
  DType dtype = DType::f32;
  int32_t max_positions = 0;  // of one sequence
  int32_t pages = 0;          // of all sequences together; 0: for one sequence of max_positions
};

class KvCache {
 public:
  // Positions per page: a divisor of the attention span, large enough that a page of one head is a long contiguous
  // read.
  static constexpr int32_t kPageSize = 64;

  KvCache(Backend& backend, const KvConfig& config);

  [[nodiscard]] static int32_t pages_for(int64_t positions);
  // Of one page in all layers, keys and values.
  [[nodiscard]] static uint64_t page_bytes(const KvConfig& config);
  [[nodiscard]] static uint64_t layer_page_bytes(const KvConfig& config, size_t layer);

  [[nodiscard]] const KvConfig& config() const { return config_; }
  [[nodiscard]] uint64_t bytes() const { return page_bytes(config_) * static_cast<uint64_t>(config_.pages); }
  [[nodiscard]] KvLayerView layer(int32_t index) const;
  // Of one sequence.
  [[nodiscard]] int32_t max_pages() const { return pages_for(config_.max_positions); }
  [[nodiscard]] PagePool& pool() { return pool_; }
  [[nodiscard]] const PagePool& pool() const { return pool_; }
  // Between steps.
  void copy_page(int32_t from, int32_t to);

 private:
  Backend& backend_;
  KvConfig config_;
  std::vector<Buffer> memory_;  // per layer: the keys of all pages, then the values
  PagePool pool_;
};

// The pages of one sequence; they go back to the pool with it. Allocates only when made.
class KvSequence {
 public:
  explicit KvSequence(KvCache& cache);
  ~KvSequence() { clear(); }
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;

  // Positions there are pages for.
  [[nodiscard]] int32_t capacity() const { return static_cast<int32_t>(pages_.size()) * KvCache::kPageSize; }
  [[nodiscard]] std::span<const int32_t> pages() const { return pages_; }
  // Makes room for `length` positions, or gives back pages beyond them. False, with nothing changed, when a sequence
  // may not be that long or the pool has too few pages.
  [[nodiscard]] bool resize(int32_t length);
  // Begins with pages that others hold or held.
  void share(std::span<const int32_t> pages);
  // Gives back the last pages first: what more texts begin with is evicted later.
  void clear();

 private:
  KvCache& cache_;
  std::vector<int32_t> pages_;
};

}  // namespace inferno
