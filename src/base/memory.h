// How much memory this process may still take, and how much it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace inferno {

// What the system says is available without swapping, less where a control group allows less, version 1 or 2, its own
// or a parent. File pages that can be dropped count as available. Nothing where neither is known. `root` is prepended
// to /proc and /sys, so that a test can describe another machine.
[[nodiscard]] std::optional<uint64_t> available_memory(const std::string& root = "");
// Swap space that is free; 0 where there is none or it is not known.
[[nodiscard]] uint64_t free_swap(const std::string& root = "");
// RAM that this process occupies now; 0 where it is not known.
[[nodiscard]] uint64_t resident_memory();

}  // namespace inferno
