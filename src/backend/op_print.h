// Ops as people read them.
#pragma once

#include <string>

#include "backend/plan.h"

namespace inferno {

// "x=f32[1,1024], w=q8_0[3072,1024]": each argument the op reads, with its type and shape. A cache is
// [pages,kv_heads,page_size,head_dim], a batch [tokens,sequences].
[[nodiscard]] std::string format_args(const OpRecord& record);

// "82.4us" below a millisecond, else "1.234ms".
[[nodiscard]] std::string format_time(double microseconds);

}  // namespace inferno
