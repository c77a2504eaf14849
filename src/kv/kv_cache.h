// What sequences keep between steps: keys and values, cut into pages of kPageSize positions, and in models with
// recurrent layers a slot of states each (state_slots.h).
//
// A page number means the same page in every layer, where it holds the layer's kv heads (see KvLayerView); layers may
// differ in heads and head sizes. Which page belongs to whom is PagePool's business; a KvSequence is one sequence's
// block table. A sequence alone in a new cache gets pages 0, 1, 2, ...: the identity.
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "kv/page_pool.h"
#include "kv/state_slots.h"

namespace inferno {

struct KvLayerShape {
  int32_t kv_heads = 0;  // 0: the layer reads the cache of another one, or has a state instead
  int32_t head_dim = 0;
  int32_t v_head_dim = 0;        // 0: as head_dim
  bool v_in_k = false;           // KvLayerView
  StateSizes state_floats = {};  // of a recurrent layer, for each sequence
};

struct KvConfig {
  std::vector<KvLayerShape> layers;
  DType dtype = DType::f32;
  int32_t max_positions = 0;  // of one sequence
  int32_t pages = 0;          // of all sequences together; 0: for one sequence of max_positions
  int32_t state_slots = 1;    // sequences at a time and snapshots, where layers have states
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
  // Of the states of one sequence; 0: no layer has any.
  [[nodiscard]] static uint64_t state_bytes(const KvConfig& config);
  [[nodiscard]] KvLayerView layer(int32_t index) const;
  // Of one sequence.
  [[nodiscard]] int32_t max_pages() const { return pages_for(config_.max_positions); }
  // The states of a layer, [slots, state_floats[part]]; empty when it has none.
  [[nodiscard]] Tensor states(int32_t layer, int32_t part) const { return slots_.states(layer, part); }
  [[nodiscard]] bool has_states() const { return state_bytes(config_) > 0; }
  [[nodiscard]] StateSlots& slots() { return slots_; }
  [[nodiscard]] PagePool& pool() { return pool_; }
  [[nodiscard]] const PagePool& pool() const { return pool_; }
  // Between steps.
  void copy_page(int32_t from, int32_t to);
  // Called with every copy, so that other ranks do the same.
  void set_on_copy(std::function<void(int32_t from, int32_t to)> on_copy) { on_copy_ = std::move(on_copy); }
  // All layers of a page, page_bytes() of them, to the host and back. Between steps; where the host sees the memory.
  void read_page(int32_t page, std::span<std::byte> out) const;
  void write_page(int32_t page, std::span<const std::byte> bytes);

 private:
  Backend& backend_;
  KvConfig config_;
  std::vector<Buffer> memory_;  // per layer: the keys of all pages, then the values
  PagePool pool_;
  StateSlots slots_;
  std::function<void(int32_t from, int32_t to)> on_copy_;
};

// The pages of one sequence, and its slot of states; they go back with it. Allocates only when made.
class KvSequence {
 public:
  explicit KvSequence(KvCache& cache);
  ~KvSequence() { clear(); }
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;

  // Positions there are pages for.
  [[nodiscard]] int32_t capacity() const { return static_cast<int32_t>(pages_.size()) * KvCache::kPageSize; }
  [[nodiscard]] std::span<const int32_t> pages() const { return pages_; }
  // In a cache with states, from the first resize() on; else 0.
  [[nodiscard]] int32_t state_slot() const { return state_slot_ < 0 ? 0 : state_slot_; }
  // Makes room for `length` positions, or gives back pages beyond them. False, with nothing changed, when a sequence
  // may not be that long, the pool has too few pages or no slot is left. States are not cut back: a sequence goes on
  // where it ended, or begins again at position 0.
  [[nodiscard]] bool resize(int32_t length);
  // Begins with pages that others hold or held.
  void share(std::span<const int32_t> pages);
  // Gives back the last pages first: what more texts begin with is evicted later.
  void clear();

 private:
  KvCache& cache_;
  std::vector<int32_t> pages_;
  int32_t state_slot_ = -1;
};

}  // namespace inferno
