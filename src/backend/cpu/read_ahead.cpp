#include "backend/cpu/read_ahead.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "threading/wait.h"

namespace inferno {

void ReadAhead::look_into(size_t op) noexcept {
  OwnReads& reads = reads_[op % kOps];
  reads.count = 0;
  plan_[op].visit([&](const auto& args) { cpu::own_reads(args, worker_, reads); });
  starts_[op % kOps] = asked_;
  asked_op_ = op;
  asked_part_ = 0;
  rest_ = reads.count > 0 ? reads.part[0] : MemoryPart{};
}

void ReadAhead::settle() noexcept {
  if (entered_ || op_ >= plan_.size()) return;
  entered_ = true;
  if (!looked_ || asked_op_ < op_) look_into(op_);
  looked_ = true;
  read_ = starts_[op_ % kOps];
}

// Whether something is left to ask for, in this part or in those after it.
bool ReadAhead::next_part() noexcept {
  while (rest_.bytes <= 0) {
    const OwnReads& reads = reads_[asked_op_ % kOps];
    if (asked_part_ + 1 < reads.count) {
      rest_ = reads.part[static_cast<size_t>(++asked_part_)];
    } else if (asked_op_ + 1 < std::min(plan_.size(), op_ + kOps)) {
      look_into(asked_op_ + 1);
    } else {
      return false;
    }
  }
  return true;
}

// The next bytes of one part, counted as asked for.
MemoryPart ReadAhead::take(int64_t bytes) noexcept {
  const MemoryPart taken = {rest_.begin, std::min(rest_.bytes, bytes)};
  rest_ = {rest_.begin + taken.bytes, rest_.bytes - taken.bytes};
  asked_ += taken.bytes;
  return taken;
}

void ReadAhead::ask(int64_t bytes) noexcept {
  constexpr auto kLine = static_cast<int64_t>(kCacheLine);
  for (; bytes > 0 && next_part(); bytes -= kLine) __builtin_prefetch(take(kLine).begin, 0, 2);
}

void ReadAhead::turn() noexcept {
  settle();
  const int64_t most = worker_.counts != nullptr ? kMostInWaits : kMostInWaitsOfFew;
  if (op_ < plan_.size() && asked_ - read_ < most) ask(kBytesPerTurn);
}

bool ReadAhead::find(const MemoryPart& own) noexcept {
  settle();
  const OwnReads& reads = reads_[op_ % kOps];
  int64_t start = starts_[op_ % kOps];
  for (int i = 0; i < reads.count; ++i) {
    const MemoryPart& part = reads.part[static_cast<size_t>(i)];
    const int64_t offset = own.begin - part.begin;
    if (offset >= 0 && offset < part.bytes) {
      read_ = start + offset;
      if (asked_ < read_) {
        asked_ = read_;
        asked_op_ = op_;
        asked_part_ = i;
        rest_ = {own.begin, part.bytes - offset};
      }
      return true;
    }
    start += part.bytes;
  }
  return false;
}

std::span<const MemoryPart> ReadAhead::beside(const MemoryPart& own) noexcept {
  if (!find(own)) return {};
  ask(read_ + kLeastLead - asked_);
  read_ += own.bytes;
  int64_t left = std::min(own.bytes, read_ + kLead - asked_);
  size_t count = 0;
  for (; left > 0 && count < beside_.size() && next_part(); left -= beside_[count++].bytes) {
    beside_[count] = take(left);
  }
  if (count == 0) beside_[count++] = {own.begin, 0};
  return std::span(beside_).first(count);
}

}  // namespace inferno
