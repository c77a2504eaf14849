// What the files of OpEncoder share: an op's memory as bindings, and sizes of grids.
#pragma once

#include "backend/metal/device.h"
#include "backend/metal/kernels/args.h"
#include "backend/metal/metal_weight.h"
#include "backend/op_args.h"

namespace inferno::metal {

inline constexpr uint32_t kSimdWidth = 32;
inline constexpr uint32_t kThreads = 64;          // of a threadgroup: two simdgroups
inline constexpr uint32_t kRowsPerSimdgroup = 4;  // kRows of products.h
inline constexpr uint32_t kFewTokens = 8;         // of products.h

[[nodiscard]] inline uint32_t u32(int64_t value) {
  return static_cast<uint32_t>(value);
}
[[nodiscard]] inline uint32_t blocks(int64_t count, int64_t per) {
  return u32((count + per - 1) / per);
}

[[nodiscard]] inline Binding in(const Tensor& t) {
  return {.data = t.data, .bytes = t.empty() ? 0 : t.bytes()};
}
[[nodiscard]] inline Binding out(const Tensor& t) {
  return {.data = t.data, .bytes = t.empty() ? 0 : t.bytes(), .written = true};
}
[[nodiscard]] inline Binding written(Binding binding) {
  binding.written = true;
  return binding;
}
[[nodiscard]] inline Binding read(Binding binding) {
  binding.written = false;
  return binding;
}
[[nodiscard]] inline Binding in(const int32_t* data, int64_t count) {
  return {.data = data, .bytes = count * int64_t{sizeof(int32_t)}};
}
[[nodiscard]] inline const MetalWeight& loaded(const Weight& weight) {
  return static_cast<const MetalWeight&>(weight);
}
[[nodiscard]] inline Binding in(const Weight* weight) {
  return weight == nullptr ? Binding{} : loaded(*weight).binding();
}
[[nodiscard]] inline Binding keys(const KvLayerView& kv) {
  return {.data = kv.k, .bytes = kv.pages * kv.page_bytes()};
}
[[nodiscard]] inline Binding values(const KvLayerView& kv) {
  return {.data = kv.v, .bytes = kv.pages * kv.values().page_bytes()};
}

[[nodiscard]] inline CacheArgs cache_args(const KvLayerView& kv) {
  return {.k_row_bytes = static_cast<uint64_t>(kv.row_bytes()),
          .v_row_bytes = static_cast<uint64_t>(kv.values().row_bytes()),
          .page_size = u32(kv.page_size),
          .kv_heads = u32(kv.kv_heads),
          .head_dim = u32(kv.head_dim),
          .value_dim = u32(kv.value_dim())};
}

// From an element on.
[[nodiscard]] inline Binding from(Binding binding, int64_t first) {
  const int64_t offset = first * int64_t{sizeof(float)};
  return {.data = static_cast<const std::byte*>(binding.data) + offset,
          .bytes = binding.bytes - offset,
          .written = binding.written};
}

}  // namespace inferno::metal
