// Small pieces that several CPU ops share: rotating a head, writing and finding rows of the KV cache.
#pragma once

#include <cmath>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/kv_view.h"
#include "backend/op_args.h"

namespace inferno::cpu {

inline void rope_head(float* head, const RopeParams& rope, int64_t position, const KernelTable& kernels) noexcept {
  const int64_t pairs = rope.rotated_dims / 2;
  const auto rotate = rope.pairing == RopePairing::half_split ? kernels.rope_half_split : kernels.rope_interleaved;
  rotate(head, rope.table.f32() + position * pairs * 2, pairs);
}

// One token's key and value of one head; slot -1 is padding and stores nothing.
inline void store_kv_row(const KvLayerView& kv, int64_t slot, int64_t head, const float* k, const float* v,
                         const KernelTable& kernels) noexcept {
  if (slot < 0) return;
  const auto store = kernels.store_row[static_cast<int>(kv.dtype)];
  const int64_t offset = kv.row_offset(slot, head);
  store(k, static_cast<char*>(kv.k) + offset, kv.head_dim);
  if (kv.v_in_k) return;
  if (kv.value_dim() == kv.head_dim) {
    store(v, static_cast<char*>(kv.v) + offset, kv.head_dim);
  } else {
    const KvLayerView values = kv.values();
    store(v, static_cast<char*>(kv.v) + values.row_offset(slot, head), values.head_dim);
  }
}

// A row or a head; without a weight it is only divided.
inline void norm_row(const float* x, const float* weight, float eps, float* out, int64_t n,
                     const KernelTable& kernels) noexcept {
  if (weight != nullptr) {
    kernels.rms_norm(x, weight, eps, out, n);
  } else {
    kernels.scale(x, 1.0F / std::sqrt(kernels.sum_squares(x, n) / static_cast<float>(n) + eps), out, n);
  }
}

}  // namespace inferno::cpu
