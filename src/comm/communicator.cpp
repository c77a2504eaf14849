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

bool uses_segments(size_t count, int ranks) {
  return ranks > 2 && count >= Communicator::kLeastSegmented;
}

void add_to(float* sum, const float* part, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += part[i];
}

void add_rounded(float* sum, std::span<const uint16_t> part) {
  for (size_t i = 0; i < part.size(); ++i) sum[i] += from_bf16(part[i]);
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
  if (!failed()) return "";
  return reason_.empty() ? transport_->failure() : reason_;
}

void Communicator::give_up(const std::string& reason) {
  if (failed()) return;
  reason_ = reason;
  failed_.store(true, std::memory_order_release);
}

void Communicator::check() const {
  if (failed()) throw RankFailure(failure());
}

// ---- sums

size_t Communicator::all_reduce_bytes(size_t count, int ranks) noexcept {
  if (ranks == 1) return 0;
  const auto all = static_cast<size_t>(ranks);
  const auto whole_bytes = [&](size_t elements) {
    return std::max((all - 1) * elements * sizeof(float), all * elements * sizeof(uint16_t));
  };
  if (!uses_segments(count, ranks)) return whole_bytes(count);
  // One more element of each segment, by rounding. Rounded to half as many bytes, there are twice as many parts.
  return std::max((count + all) * sizeof(float), whole_bytes(kLeastSegmented - 1));
}

void Communicator::all_reduce(std::span<float> x, std::span<std::byte> scratch, Wire wire, RankRange range) noexcept {
  if (range.count == 0) range = {0, size_};
  if (range.count == 1 || failed()) return;
  const bool segments = uses_segments(x.size(), range.count);
  if (wire == Wire::bf16) {
    segments ? reduce_rounded_segments(x, scratch, range) : reduce_rounded(x, scratch, range);
  } else {
    segments ? reduce_segments(x, scratch, range) : reduce_whole(x, scratch, range);
  }
}

void Communicator::reduce_whole(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept {
  auto* parts = reinterpret_cast<float*>(scratch.data());  // of all ranks but this one
  const int own = rank_ - range.first;
  for (int r = 0, at = 0; r < range.count; ++r) {
    if (r == own) continue;
    sends_.push_back({range.first + r, std::as_bytes(x)});
    receives_.push_back({range.first + r, bytes_of(parts + static_cast<size_t>(at++) * x.size(), x.size())});
  }
  transfer();
  if (failed()) return;
  if (own == 0) {
    for (int r = 1; r < range.count; ++r) add_to(x.data(), parts + static_cast<size_t>(r - 1) * x.size(), x.size());
    return;
  }
  // Everything is added onto the part of the first one.
  for (int r = 1; r < range.count; ++r) {
    const float* part = r < own   ? parts + static_cast<size_t>(r) * x.size()
                        : r > own ? parts + static_cast<size_t>(r - 1) * x.size()
                                  : x.data();
    add_to(parts, part, x.size());
  }
  std::copy_n(parts, x.size(), x.data());
}

void Communicator::reduce_segments(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept {
  auto* parts = reinterpret_cast<float*>(scratch.data());  // this rank's segment of all others
  const int self = rank_ - range.first;
  const Segment own = segment_of(x.size(), self, range.count);
  const auto part_of = [&](int r) {
    return r == self ? x.data() + own.begin : parts + static_cast<size_t>(r < self ? r : r - 1) * own.count;
  };
  for (int r = 0; r < range.count; ++r) {
    if (r == self) continue;
    const Segment theirs = segment_of(x.size(), r, range.count);
    sends_.push_back({range.first + r, std::as_bytes(x.subspan(theirs.begin, theirs.count))});
    receives_.push_back({range.first + r, bytes_of(part_of(r), own.count)});
  }
  transfer();
  if (failed()) return;
  float* sum = part_of(0);
  for (int r = 1; r < range.count; ++r) add_to(sum, part_of(r), own.count);
  if (self != 0) std::copy_n(sum, own.count, x.data() + own.begin);
  share_segments(x, range);
}

void Communicator::share_segments(std::span<float> x, RankRange range) noexcept {
  const int self = rank_ - range.first;
  const Segment own = segment_of(x.size(), self, range.count);
  for (int r = 0; r < range.count; ++r) {
    if (r == self) continue;
    const Segment theirs = segment_of(x.size(), r, range.count);
    sends_.push_back({range.first + r, std::as_bytes(x.subspan(own.begin, own.count))});
    receives_.push_back({range.first + r, bytes_of(x.data() + theirs.begin, theirs.count)});
  }
  transfer();
}

void Communicator::reduce_rounded(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept {
  auto* parts = reinterpret_cast<uint16_t*>(scratch.data());  // of all ranks
  const auto part_of = [&](int r) { return std::span(parts + static_cast<size_t>(r) * x.size(), x.size()); };
  const int own = rank_ - range.first;
  std::ranges::transform(x, part_of(own).begin(), to_bf16);
  for (int r = 0; r < range.count; ++r) {
    if (r == own) continue;
    sends_.push_back({range.first + r, std::as_bytes(part_of(own))});
    receives_.push_back({range.first + r, std::as_writable_bytes(part_of(r))});
  }
  transfer();
  if (failed()) return;
  std::ranges::transform(part_of(0), x.begin(), from_bf16);
  for (int r = 1; r < range.count; ++r) add_rounded(x.data(), part_of(r));
}

// The bits of reduce_rounded(): sums are not rounded.
void Communicator::reduce_rounded_segments(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept {
  auto* rounded = reinterpret_cast<uint16_t*>(scratch.data());  // all of x, then this rank's segment of all ranks
  const int self = rank_ - range.first;
  const Segment own = segment_of(x.size(), self, range.count);
  const auto rounded_of = [&](int r) {
    const Segment theirs = segment_of(x.size(), r, range.count);
    return std::span(rounded + theirs.begin, theirs.count);
  };
  const auto part_of = [&](int r) {
    return r == self ? rounded_of(self) : std::span(rounded + x.size() + static_cast<size_t>(r) * own.count, own.count);
  };
  std::ranges::transform(x, rounded, to_bf16);
  for (int r = 0; r < range.count; ++r) {
    if (r == self) continue;
    sends_.push_back({range.first + r, std::as_bytes(rounded_of(r))});
    receives_.push_back({range.first + r, std::as_writable_bytes(part_of(r))});
  }
  transfer();
  if (failed()) return;
  float* sum = x.data() + own.begin;
  std::ranges::transform(part_of(0), sum, from_bf16);
  for (int r = 1; r < range.count; ++r) add_rounded(sum, part_of(r));
  share_segments(x, range);
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

void Communicator::send(int to, std::span<const std::byte> bytes) noexcept {
  sends_.push_back({to, bytes});
  transfer();
}

void Communicator::receive(int from, std::span<std::byte> bytes) noexcept {
  receives_.push_back({from, bytes});
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
