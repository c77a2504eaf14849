#include "backend/cpu/weight_prefetcher.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "threading/wait.h"

namespace inferno {

void WeightPrefetcher::load_ranges(size_t op) noexcept {
  WeightRanges& ranges = ranges_[op % kOps];
  ranges.count = 0;
  plan_[op].visit([&](const auto& args) { cpu::weight_ranges(args, worker_, ranges); });
  starts_[op % kOps] = prefetched_;
  prefetch_op_ = op;
  prefetch_range_ = 0;
  rest_ = ranges.count > 0 ? ranges.range[0] : MemoryRange{};
}

void WeightPrefetcher::finish_enter() noexcept {
  if (entered_ || op_ >= plan_.size()) return;
  entered_ = true;
  if (!loaded_ || prefetch_op_ < op_) load_ranges(op_);
  loaded_ = true;
  read_ = starts_[op_ % kOps];
}

// Whether anything is left to prefetch, in this range or a later one.
bool WeightPrefetcher::next_range() noexcept {
  while (rest_.bytes <= 0) {
    const WeightRanges& ranges = ranges_[prefetch_op_ % kOps];
    if (prefetch_range_ + 1 < ranges.count) {
      rest_ = ranges.range[static_cast<size_t>(++prefetch_range_)];
    } else if (prefetch_op_ + 1 < std::min(plan_.size(), op_ + kOps)) {
      load_ranges(prefetch_op_ + 1);
    } else {
      return false;
    }
  }
  return true;
}

// The next bytes of the current range, from now on counted as prefetched.
MemoryRange WeightPrefetcher::advance(int64_t bytes) noexcept {
  const MemoryRange next = {rest_.begin, std::min(rest_.bytes, bytes)};
  rest_ = {rest_.begin + next.bytes, rest_.bytes - next.bytes};
  prefetched_ += next.bytes;
  return next;
}

void WeightPrefetcher::prefetch(int64_t bytes) noexcept {
  constexpr auto kLine = static_cast<int64_t>(kCacheLine);
  for (; bytes > 0 && next_range(); bytes -= kLine) __builtin_prefetch(advance(kLine).begin, 0, 2);
}

void WeightPrefetcher::prefetch_in_wait() noexcept {
  finish_enter();
  const int64_t max_lead = worker_.counts != nullptr ? kMaxLeadInWaits : kMaxLeadInWaitsFewThreads;
  if (op_ < plan_.size() && prefetched_ - read_ < max_lead) prefetch(kBytesPerSpin);
}

bool WeightPrefetcher::find(const MemoryRange& own) noexcept {
  finish_enter();
  const WeightRanges& ranges = ranges_[op_ % kOps];
  int64_t start = starts_[op_ % kOps];
  for (int i = 0; i < ranges.count; ++i) {
    const MemoryRange& range = ranges.range[static_cast<size_t>(i)];
    const int64_t offset = own.begin - range.begin;
    if (offset >= 0 && offset < range.bytes) {
      read_ = start + offset;
      if (prefetched_ < read_) {
        prefetched_ = read_;
        prefetch_op_ = op_;
        prefetch_range_ = i;
        rest_ = {own.begin, range.bytes - offset};
      }
      return true;
    }
    start += range.bytes;
  }
  return false;
}

std::span<const MemoryRange> WeightPrefetcher::prefetches_for(const MemoryRange& own) noexcept {
  if (!find(own)) return {};
  prefetch(read_ + kMinLead - prefetched_);
  read_ += own.bytes;
  int64_t left = std::min(own.bytes, read_ + kMaxLead - prefetched_);
  size_t count = 0;
  for (; left > 0 && count < scheduled_.size() && next_range(); left -= scheduled_[count++].bytes) {
    scheduled_[count] = advance(left);
  }
  if (count == 0) scheduled_[count++] = {own.begin, 0};
  return std::span(scheduled_).first(count);
}

}  // namespace inferno
