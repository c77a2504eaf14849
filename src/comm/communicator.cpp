#include "comm/communicator.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/rank_failure.h"

namespace inferno {
namespace {

struct Segment {
  size_t begin = 0;
  size_t count = 0;
};
Segment segment_of(size_t count, int rank, int size) {
  const auto at = [&](int r) { return count * static_cast<size_t>(r) / static_cast<size_t>(size); };
  return {at(rank), at(rank + 1) - at(rank)};
}

// To the nearest, ties to even; a NaN stays one.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
float from_bf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

void add_to(float* sum, const float* part, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += part[i];
}

std::span<std::byte> bytes_of(float* x, size_t count) {
  return std::as_writable_bytes(std::span(x, count));
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  rank_ = transport_->rank();
  size_ = transport_->size();
  sends_.reserve(static_cast<size_t>(size_));
  receives_.reserve(static_cast<size_t>(size_));
}

void Communicator::transfer(Patience patience) noexcept {
  if (!failed() && !transport_->transfer(sends_, receives_, patience)) failed_.store(true, std::memory_order_release);
  sends_.clear();
  receives_.clear();
}

std::string Communicator::failure() const {
  return failed() ? transport_->failure() : "";
}

void Communicator::check() const {
  if (failed()) throw RankFailure(failure());
}

// ---- sums

bool Communicator::uses_segments(size_t count) const noexcept {
  return size_ > 2 && count >= kLeastSegmented;
}

size_t Communicator::all_reduce_bytes(size_t count) const noexcept {
  if (size_ == 1) return 0;
  const auto ranks = static_cast<size_t>(size_);
  // Of segments: one more element each, by rounding.
  const size_t elements = uses_segments(count) ? count + ranks : (ranks - 1) * count;
  // Rounded parts of all ranks are half as large.
  return std::max(elements * sizeof(float), ranks * count * sizeof(uint16_t));
}

void Communicator::all_reduce(std::span<float> x, std::span<std::byte> scratch, Wire wire) noexcept {
  if (size_ == 1 || failed()) return;
  if (wire == Wire::bf16) return reduce_rounded(x, scratch);
  uses_segments(x.size()) ? reduce_segments(x, scratch) : reduce_whole(x, scratch);
}

void Communicator::reduce_whole(std::span<float> x, std::span<std::byte> scratch) noexcept {
  auto* parts = reinterpret_cast<float*>(scratch.data());  // of all ranks but this one
  for (int r = 0, at = 0; r < size_; ++r) {
    if (r == rank_) continue;
    sends_.push_back({r, std::as_bytes(x)});
    receives_.push_back({r, bytes_of(parts + static_cast<size_t>(at++) * x.size(), x.size())});
  }
  transfer();
  if (failed()) return;
  if (rank_ == 0) {
    for (int r = 1; r < size_; ++r) add_to(x.data(), parts + static_cast<size_t>(r - 1) * x.size(), x.size());
    return;
  }
  // Everything is added onto the part of rank 0.
  for (int r = 1; r < size_; ++r) {
    const float* part = r < rank_   ? parts + static_cast<size_t>(r) * x.size()
                        : r > rank_ ? parts + static_cast<size_t>(r - 1) * x.size()
                                    : x.data();
    add_to(parts, part, x.size());
  }
  std::copy_n(parts, x.size(), x.data());
}

void Communicator::reduce_segments(std::span<float> x, std::span<std::byte> scratch) noexcept {
  auto* parts = reinterpret_cast<float*>(scratch.data());  // this rank's segment of all others
  const Segment own = segment_of(x.size(), rank_, size_);
  const auto part_of = [&](int r) {
    return r == rank_ ? x.data() + own.begin : parts + static_cast<size_t>(r < rank_ ? r : r - 1) * own.count;
  };
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Segment theirs = segment_of(x.size(), r, size_);
    sends_.push_back({r, std::as_bytes(x.subspan(theirs.begin, theirs.count))});
    receives_.push_back({r, bytes_of(part_of(r), own.count)});
  }
  transfer();
  if (failed()) return;
  float* sum = part_of(0);
  for (int r = 1; r < size_; ++r) add_to(sum, part_of(r), own.count);
  if (rank_ != 0) std::copy_n(sum, own.count, x.data() + own.begin);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Segment theirs = segment_of(x.size(), r, size_);
    sends_.push_back({r, std::as_bytes(x.subspan(own.begin, own.count))});
    receives_.push_back({r, bytes_of(x.data() + theirs.begin, theirs.count)});
  }
  transfer();
}

void Communicator::reduce_rounded(std::span<float> x, std::span<std::byte> scratch) noexcept {
  auto* parts = reinterpret_cast<uint16_t*>(scratch.data());  // of all ranks
  const auto part_of = [&](int r) { return std::span(parts + static_cast<size_t>(r) * x.size(), x.size()); };
  std::ranges::transform(x, part_of(rank_).begin(), to_bf16);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    sends_.push_back({r, std::as_bytes(part_of(rank_))});
    receives_.push_back({r, std::as_writable_bytes(part_of(r))});
  }
  transfer();
  if (failed()) return;
  std::ranges::transform(part_of(0), x.begin(), from_bf16);
  for (int r = 1; r < size_; ++r) {
    const std::span<const uint16_t> part = part_of(r);
    for (size_t i = 0; i < x.size(); ++i) x[i] += from_bf16(part[i]);
  }
}

// ---- the others

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) noexcept {
  if (failed()) return;
  std::memcpy(all.data() + static_cast<size_t>(rank_) * mine.size(), mine.data(), mine.size());
  if (size_ == 1) return;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    sends_.push_back({r, mine});
    receives_.push_back({r, all.subspan(static_cast<size_t>(r) * mine.size(), mine.size())});
  }
  transfer();
}

void Communicator::broadcast(std::span<std::byte> bytes, Patience patience) noexcept {
  if (size_ == 1 || failed()) return;
  if (is_leader()) {
    for (int r = 1; r < size_; ++r) sends_.push_back({r, bytes});
  } else {
    receives_.push_back({0, bytes});
  }
  transfer(patience);
}

void Communicator::barrier() noexcept {
  if (size_ == 1 || failed()) return;
  std::byte mine{};
  const auto token = std::span(&mine, 1);
  std::byte theirs{};
  // To the leader, and back from it.
  if (is_leader()) {
    for (int r = 1; r < size_; ++r) {
      receives_.push_back({r, {&theirs, 1}});
      transfer();
    }
  } else {
    sends_.push_back({0, token});
    transfer();
  }
  broadcast(token);
}

}  // namespace inferno
