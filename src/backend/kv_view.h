// One layer of the KV cache as the ops see it.
//
// Layout, the same on every backend: keys [page][kv_head][offset in page][head_dim], values the same with value_dim,
// rows stored in `dtype` (a quantized row is head_dim / 32 blocks). A sequence's position p lives in page block_table[p
// / page_size] at offset p % page_size. Backends allocate the memory, src/kv decides who owns which page.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace inferno {

// Query heads that may share a kv head: what attention kernels have room for.
inline constexpr int32_t kMaxQueryGroup = 128;

struct KvLayerView {
  void* k = nullptr;
  void* v = nullptr;
  int32_t pages = 0;
  int32_t page_size = 0;  // positions per page
  int32_t kv_heads = 0;   // of this rank
  int32_t head_dim = 0;   // elements of a key of one head
  DType dtype = DType::f32;
  int32_t v_head_dim = 0;  // elements of a value; 0: as many as of a key
  // A value is the first value_dim elements of its key and stored with it: v is k, or a copy of it.
  bool v_in_k = false;
  int32_t stored_dim = 0;  // elements of a stored row; 0: head_dim

  [[nodiscard]] int32_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
  [[nodiscard]] int64_t row_bytes() const { return inferno::row_bytes(dtype, stored_dim == 0 ? head_dim : stored_dim); }
  [[nodiscard]] int64_t head_bytes() const { return page_size * row_bytes(); }
  [[nodiscard]] int64_t page_bytes() const { return kv_heads * head_bytes(); }
  // Byte offset, in k, of the row of `head` at cache slot `slot` (page * page_size + offset).
  [[nodiscard]] int64_t row_offset(int64_t slot, int64_t head) const {
    return slot / page_size * page_bytes() + head * head_bytes() + slot % page_size * row_bytes();
  }
  // The same of values, in v: this view with rows of values in place of keys.
  [[nodiscard]] KvLayerView values() const {
    KvLayerView view = *this;
    view.k = v;
    view.head_dim = value_dim();
    if (v_in_k) view.stored_dim = head_dim;
    return view;
  }
};

}  // namespace inferno
