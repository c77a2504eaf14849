// Aligned memory for weights, activations and scratch.
#pragma once

#include <cstddef>
#include <memory>

namespace inferno {

// 64-byte aligned memory that is freed with the object.
struct AlignedFree {
  void operator()(void* data) const noexcept;
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedFree>;
enum class PageHint { huge, none };
// An Error when there is no memory.
// `alignment` is at least this, a power of two of 64 or more.
[[nodiscard]] AlignedMemory aligned_memory(size_t bytes, PageHint hint = PageHint::huge, size_t alignment = 64);

}  // namespace inferno
