// What the attention kernels share: finding the rows of a span, and the softmax of one query's scores.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/arm/exp.h"
#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

inline constexpr int64_t kChunk = 64;  // positions that are converted and multiplied in one go: fits the first cache

// Rows [begin, begin + count) of the span; from `rows` on the last row once more, whose weight will be zero.
inline void find_rows(const SpanTask& task, const void* const* pages, int64_t begin, int64_t count, int64_t rows,
                      const uint8_t** out) {
  int64_t i = 0;
  while (i < count && begin + i < rows) {
    const int64_t position = begin + i;
    const int64_t offset = position % task.page_size;
    const uint8_t* row = static_cast<const uint8_t*>(pages[position / task.page_size]) + offset * task.row_bytes;
    int64_t run = task.page_size - offset;
    run = run < rows - position ? run : rows - position;
    run = run < count - i ? run : count - i;
    for (int64_t j = 0; j < run; ++j) out[i + j] = row + j * task.row_bytes;
    i += run;
  }
  for (; i < count; ++i) out[i] = out[i - 1];
}

inline int64_t most_visible(const SpanTask& task) {
  int64_t most = 0;
  for (int64_t i = 0; i < task.queries; ++i) most = task.visible[i] > most ? task.visible[i] : most;
  return most;
}

// scores[padded], `visible` of them valid, times scale -> weights exp(score - m) in place, zero past `visible`; padded
// is a multiple of 4. Returns m and l. The sum runs over four lanes in ascending order whatever `visible` is.
struct Softmax {
  float m;
  float l;
};
inline Softmax span_softmax(float* scores, int64_t visible, int64_t padded, float scale) {
  if (visible == 0) {
    for (int64_t i = 0; i < padded; i += 4) vst1q_f32(scores + i, vdupq_n_f32(0));
    return {-__builtin_inff(), 0.0F};
  }
  float32x4_t top = vdupq_n_f32(-__builtin_inff());
  for (int64_t i = 0; i < padded; i += 4) {
    float32x4_t s = vmulq_n_f32(vld1q_f32(scores + i), scale);
    if (i + 4 > visible) {
      const auto left = static_cast<int32_t>(visible - i);
      const int32_t lanes[4] = {0, 1, 2, 3};
      s = vbslq_f32(vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(left)), s, vdupq_n_f32(-__builtin_inff()));
    }
    vst1q_f32(scores + i, s);
    top = vmaxq_f32(top, s);
  }
  const float m = vmaxvq_f32(top);
  const float32x4_t most = vdupq_n_f32(m);
  float32x4_t sum = vdupq_n_f32(0);
  for (int64_t i = 0; i < padded; i += 4) {
    const float32x4_t e = exp_nonpositive(vsubq_f32(vld1q_f32(scores + i), most));
    vst1q_f32(scores + i, e);
    sum = vaddq_f32(sum, e);
  }
  return {m, vaddvq_f32(sum)};
}

}  // namespace
}  // namespace inferno
