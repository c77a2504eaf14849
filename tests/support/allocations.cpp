#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> count{0};
}  // namespace

void* operator new(size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  void* data = std::malloc(size == 0 ? 1 : size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, size_t /*size*/) noexcept {
  std::free(data);
}

namespace inferno::testing {

int64_t allocations() {
  return count.load(std::memory_order_relaxed);
}

}  // namespace inferno::testing
