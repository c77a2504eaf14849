#include "serve/waiting_body.h"

#include <utility>

#include "base/platform.h"

namespace inferno::serve {
namespace {

constexpr size_t kLargeBody = size_t{1} << 18;

}  // namespace

WaitingBody::WaitingBody(std::string text, std::atomic<uint64_t>& sum) : text_(std::move(text)), sum_(sum) {
  sum_ += text_.size();
}

WaitingBody::~WaitingBody() {
  const size_t bytes = text_.size();
  sum_ -= bytes;
  if (bytes < kLargeBody) return;
  text_ = std::string();
  platform::return_free_memory();
}

}  // namespace inferno::serve
