// Ops that run as one: each but the last has a private result, which the next op reads (op_args.h).
//
// Nobody may look between the ops of a group. A decorator that looks at results, or decides where ops run, adds each op
// to an OpGroup and acts when the group is complete; most groups are a single op.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "backend/plan.h"

namespace inferno {

[[nodiscard]] inline bool has_private_result(const OpRecord& record) {
  return record.visit([](const auto& args) {
    if constexpr (requires { args.private_result; }) {
      return args.private_result;
    } else {
      return false;
    }
  });
}

// From here on the result is everybody's: the op ends its group.
inline void make_public(OpRecord& record) {
  record.visit([&](const auto& args) {
    if constexpr (requires { args.private_result; }) {
      auto changed = args;
      changed.private_result = false;
      record.assign(changed);
    }
  });
}

class OpGroup {
 public:
  static constexpr size_t kMaxOps = 4;

  // Returns whether the group is now complete.
  template <typename Args>
  bool add(const Args& args) {
    INFERNO_CHECK(size_ < kMaxOps);
    ops_[size_++].assign(args);
    return !has_private_result(ops_[size_ - 1]);
  }
  void clear() { size_ = 0; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::span<OpRecord> ops() { return std::span(ops_).first(size_); }

 private:
  std::array<OpRecord, kMaxOps> ops_;
  size_t size_ = 0;
};

}  // namespace inferno
