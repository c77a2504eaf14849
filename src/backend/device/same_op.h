// Whether two recorded ops are the same: same op, same addresses, shapes, counts and values.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/plan.h"

namespace inferno::device {

namespace detail {

inline bool same(const Tensor& a, const Tensor& b) {
  return a.data == b.data && a.shape == b.shape && a.dtype == b.dtype;
}
inline bool same(const KvLayerView& a, const KvLayerView& b) {
  return a.k == b.k && a.v == b.v && a.pages == b.pages && a.page_size == b.page_size && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.dtype == b.dtype && a.v_head_dim == b.v_head_dim && a.v_in_k == b.v_in_k &&
         a.stored_dim == b.stored_dim;
}
// All of a batch that the host knows; the arrays' contents are read on the device.
inline bool same(const StepBatch& a, const StepBatch& b) {
  return a.tokens == b.tokens && a.sequences == b.sequences && a.logit_rows == b.logit_rows &&
         a.max_pages == b.max_pages && a.decodes == b.decodes && a.deep == b.deep && a.token_ids == b.token_ids &&
         a.pos == b.pos && a.slot == b.slot && a.seq_of_token == b.seq_of_token && a.q_begin == b.q_begin &&
         a.kv_len == b.kv_len && a.block_table == b.block_table && a.logit_row_ids == b.logit_row_ids &&
         a.state_slot == b.state_slot;
}
template <typename T>
bool same(const T& a, const T& b) {
  return a == b;
}

}  // namespace detail

template <typename Args>
[[nodiscard]] bool same_args(const Args& x, const Args& y) {
  // Equal bytes are the common case; padding between fields may differ in equal args.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): other bytes are compared field by field
  if (std::memcmp(&x, &y, sizeof(Args)) == 0) return true;
  bool equal = true;
  const auto* base = reinterpret_cast<const char*>(&x);
  const auto* other = reinterpret_cast<const char*>(&y);
  Args::fields(x, [&](FieldTag /*tag*/, const char* /*name*/, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    // The same field of y is at the same offset.
    const auto offset = reinterpret_cast<const char*>(&field) - base;
    equal = equal && detail::same(field, *reinterpret_cast<const Field*>(other + offset));
  });
  return equal;
}

[[nodiscard]] inline bool same_op(const OpRecord& a, const OpRecord& b) {
  return a.op() == b.op() &&
         a.visit([&](const auto& x) { return same_args(x, b.args<std::remove_cvref_t<decltype(x)>>()); });
}

[[nodiscard]] inline bool same_ops(const std::vector<OpRecord>& a, const std::vector<OpRecord>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_op);
}

}  // namespace inferno::device
