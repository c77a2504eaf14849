#include "support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/thread_sanitizer.h"

namespace {

std::atomic<int64_t> count{0};
thread_local int64_t count_here = 0;

}  // namespace

#if !INFERNO_THREAD_SANITIZER  // nothing is counted there
namespace {

void* counted(size_t bytes, size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  ++count_here;
  void* data = nullptr;
  return posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes == 0 ? 1 : bytes) == 0 ? data : nullptr;
}

void* counted_or_throw(size_t bytes, size_t alignment) {
  void* data = counted(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) {
  return counted_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new[](size_t bytes) {
  return counted_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete[](void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, size_t /*bytes*/) noexcept {
  std::free(data);
}
void operator delete[](void* data, size_t /*bytes*/) noexcept {
  std::free(data);
}
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}
void operator delete[](void* data, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}
void operator delete(void* data, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}
void operator delete[](void* data, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return counted(bytes, alignment);
}
#endif

namespace inferno::testing {

int64_t allocations() {
  return count.load(std::memory_order_relaxed);
}
int64_t allocations_here() {
  return count_here;
}

}  // namespace inferno::testing
