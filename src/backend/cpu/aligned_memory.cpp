#include "backend/cpu/aligned_memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

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
  // Large pieces lie on the system's large pages where it has them: walking down the columns of a matrix needs an
  // address translation for every row.
  constexpr size_t kLargePage = size_t{2} << 20;
  const bool large = bytes >= kLargePage;
  const size_t rounded = std::max<size_t>(bytes + (kAlignment - bytes % kAlignment) % kAlignment, kAlignment);
  void* data = std::aligned_alloc(large ? kLargePage : kAlignment, rounded);
  if (data == nullptr) {
    fail("out of memory: {} more are needed; use a smaller model or type, or a smaller --ctx", format_bytes(bytes));
  }
#if defined(__linux__)
  if (large) madvise(data, rounded / kLargePage * kLargePage, MADV_HUGEPAGE);  // a hint: failing is no harm
#endif
  return AlignedMemory(static_cast<std::byte*>(data));
}

}  // namespace inferno
