#include "backend/cuda/transfers.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace inferno::cuda {
namespace {

constexpr size_t kOutboxBytes = size_t{512} << 10;
constexpr size_t kInboxBytes = size_t{4} << 10;
constexpr size_t kInboxHeader = 64;  // the count has a cache line of its own
constexpr size_t kAlignment = 64;

}  // namespace

Transfers::Transfers(const std::shared_ptr<FreeCount>& frees)
    : staging_(pinned_memory(kOutboxBytes)),
      inbox_(pinned_memory(kInboxHeader + kInboxBytes)),
      delivered_(sizeof(uint32_t), frees) {
  std::memset(inbox_.get(), 0, kInboxHeader);
  staged_.reserve(kMaxFetches);
}

bool Transfers::stage(void* to, const void* host, size_t bytes) {
  if (fetch_in_flight_ || staged_.size() == kMaxFetches || bytes % 4 != 0 ||
      reinterpret_cast<uintptr_t>(to) % 16 != 0 || bytes > kOutboxBytes - used_) {
    return false;
  }
  if (is_staged(to, bytes)) return false;  // all of them are fetched at the same time
  std::memcpy(staging_.get() + used_, host, bytes);
  staged_.push_back({.to = to, .offset = static_cast<uint32_t>(used_), .bytes = static_cast<uint32_t>(bytes)});
  used_ = (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return true;
}

bool Transfers::is_staged(const void* data, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  return std::any_of(staged_.begin(), staged_.end(), [&](const Upload& upload) {
    const auto* to = static_cast<const std::byte*>(upload.to);
    return begin < to + upload.bytes && to < begin + bytes;
  });
}

void Transfers::launch_fetch(const LaunchContext& c) const {
  FetchTask task;
  for (const Upload& upload : staged_) {
    task.piece[task.pieces++] = {.from = staging_.get() + upload.offset, .to = upload.to, .bytes = upload.bytes};
  }
  cuda::launch_fetch(c, task);
}

void Transfers::on_fetch() {
  staged_.clear();
  used_ = 0;
  fetch_in_flight_ = true;
}

bool Transfers::is_small(const Download& download) {
  return download.bytes <= kInboxBytes && download.bytes % 4 == 0 &&
         reinterpret_cast<uintptr_t>(download.from) % 4 == 0;
}

void Transfers::launch_deliver(const LaunchContext& c, const Download& download) const {
  cuda::launch_deliver(c, download.from, static_cast<int64_t>(download.bytes), inbox_.get() + kInboxHeader,
                       static_cast<uint32_t*>(delivered_.data()), reinterpret_cast<uint32_t*>(inbox_.get()));
}

bool Transfers::delivered() const {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(inbox_.get())).load(std::memory_order_acquire) == expected_;
}

void Transfers::read_delivered(void* host, size_t bytes) const {
  std::memcpy(host, inbox_.get() + kInboxHeader, bytes);
}

}  // namespace inferno::cuda
