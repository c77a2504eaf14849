#include "backend/cpu/aligned_memory.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

void AlignedFree::operator()(void* data) const noexcept {
  std::free(data);
}

AlignedMemory aligned_memory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t rounded = std::max<size_t>(bytes + (kAlignment - bytes % kAlignment) % kAlignment, kAlignment);
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    fail("out of memory: {} more are needed; use a smaller model or type, or a smaller --ctx", format_bytes(bytes));
  }
  return AlignedMemory(static_cast<std::byte*>(data));
}

}  // namespace inferno
