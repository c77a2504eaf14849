#include "support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/thread_sanitizer.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

std::atomic<int64_t> count{0};
thread_local int64_t count_here = 0;
std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

}  // namespace

#if !INFERNO_THREAD_SANITIZER  // nothing is counted there
namespace {

void* counted(size_t bytes, size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  ++count_here;
  void* data = nullptr;
  return posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes == 0 ? 1 : bytes) == 0 ? data : nullptr;
}

int64_t size_of([[maybe_unused]] void* data) noexcept {
#ifdef __GLIBC__
  return static_cast<int64_t>(malloc_usable_size(data));
#else
  return 0;
#endif
}

void* counted_or_throw(size_t bytes, size_t alignment) {
  void* data = counted(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  const int64_t size = size_of(data);
  const int64_t now = live.fetch_add(size, std::memory_order_relaxed) + size;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return data;
}

void give_back(void* data) noexcept {
  if (data != nullptr) live.fetch_sub(size_of(data), std::memory_order_relaxed);
  std::free(data);
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
  give_back(data);
}
void operator delete[](void* data) noexcept {
  give_back(data);
}
void operator delete(void* data, size_t /*bytes*/) noexcept {
  give_back(data);
}
void operator delete[](void* data, size_t /*bytes*/) noexcept {
  give_back(data);
}
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept {
  give_back(data);
}
void operator delete[](void* data, std::align_val_t /*alignment*/) noexcept {
  give_back(data);
}
void operator delete(void* data, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  give_back(data);
}
void operator delete[](void* data, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  give_back(data);
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
int64_t live_bytes() {
  return live.load(std::memory_order_relaxed);
}
int64_t peak_bytes() {
  return peak.load(std::memory_order_relaxed);
}
void reset_peak_bytes() {
  peak.store(live_bytes(), std::memory_order_relaxed);
}

}  // namespace inferno::testing
