#include "profile/dry_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

class DryWeight final : public Weight {
 public:
  using Weight::Weight;
  [[nodiscard]] uint64_t bytes() const override { return static_cast<uint64_t>(rows() * row_bytes(dtype(), cols())); }
  void read_row(int64_t /*row*/, std::span<std::byte> out) const override {
    std::fill(out.begin(), out.end(), std::byte{0});
  }
};

}  // namespace

Buffer DryBackend::allocate(size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail("no address space for {}", format_bytes(bytes));
  sizes_[data] = size;
  allocated_ += bytes;
  return {this, data, bytes};
}

void DryBackend::deallocate(void* data) noexcept {
  const auto found = sizes_.find(data);
  ::munmap(data, found->second);
  sizes_.erase(found);
}

void DryBackend::upload(void* destination, const void* host, size_t bytes) {
  std::memcpy(destination, host, bytes);
}

void DryBackend::download(void* host, const void* source, size_t bytes) {
  std::memcpy(host, source, bytes);
}

std::unique_ptr<Weight> DryBackend::load_weight(const WeightSource& source, WeightUse /*uses*/) {
  return std::make_unique<DryWeight>(source);
}

void DryBackend::begin_step(StepMode /*mode*/) {
  step_.clear();
}

#define OP(name, Args)                      \
  void DryBackend::name(const Args& args) { \
    step_.emplace_back().assign(args);      \
  }
#include "backend/op_list.inc"

}  // namespace inferno
