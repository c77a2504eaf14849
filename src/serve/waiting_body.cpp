#include "serve/waiting_body.h"

#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

#include <utility>

namespace inferno::serve {
namespace {

constexpr size_t kLargeBody = size_t{1} << 18;

void return_free_memory() noexcept {
#if defined(__GLIBC__)
  malloc_trim(0);
#elif defined(__APPLE__)
  malloc_zone_pressure_relief(nullptr, 0);
#endif
}

}  // namespace

WaitingBody::WaitingBody(std::string text, std::atomic<uint64_t>& sum) : text_(std::move(text)), sum_(sum) {
  sum_ += text_.size();
}

WaitingBody::~WaitingBody() {
  const size_t bytes = text_.size();
  sum_ -= bytes;
  if (bytes < kLargeBody) return;
  text_ = std::string();
  return_free_memory();
}

}  // namespace inferno::serve
