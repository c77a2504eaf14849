// How long work in the library reports its progress: to whoever wants to draw it.
#pragma once

#include <cstdint>

#include "inferno/types.h"

namespace inferno {

// Counts the parts of one work and reports them; an empty callback is fine.
class ProgressCounter {
 public:
  ProgressCounter(const OnProgress& report, uint64_t total) : report_(report), total_(total) { tell(0); }
  void advance(uint64_t amount) { tell(amount < total_ - done_ ? done_ + amount : total_); }
  void finish() {
    if (done_ < total_) tell(total_);
  }

 private:
  void tell(uint64_t done) {
    done_ = done;
    if (report_) report_(done_, total_);
  }

  const OnProgress& report_;
  uint64_t total_;
  uint64_t done_ = 0;
};

}  // namespace inferno
