// A recorded step: ops with their args, copied into fixed memory, in order.
//
// Recording allocates nothing once the plan is made; a step with more ops than the capacity is a programmer's error.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace inferno {

// One op and its args by value.
class OpRecord {
 public:
  template <typename Args>
  void assign(const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && std::is_trivially_destructible_v<Args>);
    static_assert(sizeof(Args) <= kMaxArgsBytes && alignof(Args) <= alignof(std::max_align_t));
    op_ = OpOf<Args>::kId;
    std::memcpy(storage_, &args, sizeof(Args));
  }
  [[nodiscard]] OpId op() const { return op_; }
  // The args; Args must be the type that was assigned.
  template <typename Args>
  [[nodiscard]] const Args& args() const {
    return *std::launder(reinterpret_cast<const Args*>(storage_));
  }
  // Calls f(args) with the args' own type.
  template <typename F>
  decltype(auto) visit(F&& f) const {
    switch (op_) {
#define OP(name, Args) \
  case OpId::name:     \
    return f(args<Args>());
#include "backend/op_list.inc"
      default:
        check_failed(__FILE__, __LINE__, "known op");
    }
  }

 private:
  static constexpr size_t kMaxArgsBytes = 576;
  alignas(std::max_align_t) std::byte storage_[kMaxArgsBytes];
  OpId op_ = OpId::count;
};

class Plan {
 public:
  explicit Plan(size_t capacity) { records_.reserve(capacity); }

  void clear() { records_.clear(); }
  template <typename Args>
  void record(const Args& args) {
    INFERNO_CHECK(records_.size() < records_.capacity());
    records_.emplace_back().assign(args);
  }
  [[nodiscard]] size_t size() const { return records_.size(); }
  [[nodiscard]] const OpRecord& operator[](size_t i) const { return records_[i]; }

 private:
  std::vector<OpRecord> records_;
};

}  // namespace inferno
