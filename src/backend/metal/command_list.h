// The commands that a step is made of: dispatches with their arguments, and where they wait. They are given to the
// device as a whole, and once more whenever the step repeats.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/metal/device.h"

namespace inferno::metal {

class CommandList {
 public:
  void clear() {
    commands_.clear();
    args_.clear();
    buffers_.clear();
  }

  // `waits`: for all dispatches before it.
  void add(const Dispatch& what, bool waits) {
    commands_.push_back({.kernel = what.kernel,
                         .groups = what.groups,
                         .threads = what.threads,
                         .waits = waits,
                         .args = args_.size(),
                         .args_bytes = what.args.size(),
                         .buffers = buffers_.size(),
                         .buffer_count = what.buffers.size()});
    args_.insert(args_.end(), what.args.begin(), what.args.end());
    args_.resize((args_.size() + kArgsAlignment - 1) / kArgsAlignment * kArgsAlignment);
    buffers_.insert(buffers_.end(), what.buffers.begin(), what.buffers.end());
  }

  void give(Device& device) const {
    for (const Command& c : commands_) {
      if (c.waits) device.barrier();
      device.dispatch({.kernel = c.kernel,
                       .groups = c.groups,
                       .threads = c.threads,
                       .args = std::span(args_).subspan(c.args, c.args_bytes),
                       .buffers = std::span(buffers_).subspan(c.buffers, c.buffer_count)});
    }
  }

 private:
  static constexpr size_t kArgsAlignment = 8;  // of the widest field of kernels/args.h

  struct Command {
    KernelId kernel;
    GridSize groups;
    uint32_t threads;
    bool waits;
    size_t args;  // where they begin
    size_t args_bytes;
    size_t buffers;  // the same
    size_t buffer_count;
  };
  std::vector<Command> commands_;
  std::vector<std::byte> args_;
  std::vector<Binding> buffers_;
};

}  // namespace inferno::metal
