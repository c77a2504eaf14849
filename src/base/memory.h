// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>

namespace inferno {

// What the system says is available without swapping, less where a cgroup allows less. Nothing where neither is known.
[[nodiscard]] std::optional<uint64_t> available_memory();

}  // namespace inferno
