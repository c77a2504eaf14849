// What the attention kernels share: finding the rows of a span, and the softmax of one query's scores.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/arm/exp.h"
#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

inline constexpr int64_t kChunk = 64;  // positions that are converted and multiplied together: fits L1

// Rows [begin, begin + count) of the span; from `rows` on the last row again, whose weight will be zero.
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

inline int64_t max_visible(const SpanTask& task) {
  int64_t most = 0;
  for (int64_t i = 0; i < task.queries; ++i) most = task.visible[i] > most ? task.visible[i] : most;
  return most;
}

struct Softmax {
  float m;
  float l;
};

// Scores from position p on, scaled; -infinity past `visible`.
inline float32x4_t visible_scores(const float* scores, int64_t p, int64_t visible, float scale) {
  const float32x4_t s = vmulq_n_f32(vld1q_f32(scores + p), scale);
  if (p + 4 <= visible) return s;
  const int32_t lanes[4] = {0, 1, 2, 3};
  const uint32x4_t seen = vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(static_cast<int32_t>(visible - p)));
  return vbslq_f32(seen, s, vdupq_n_f32(-__builtin_inff()));
}

// scores[padded], `visible` of them valid: store(p, weights) for every 4 positions, weight = exp(score * scale - m),
// zero past `visible`. padded is a multiple of 8. The sum l runs over four lanes in ascending order whatever `visible`
// is.
template <typename Store>
inline Softmax span_softmax(const float* scores, int64_t visible, int64_t padded, float scale, Store store) {
  constexpr int kVectors = 4;
  const float32x4_t zero = vdupq_n_f32(0);
  if (visible == 0) {
    for (int64_t p = 0; p < padded; p += 4) store(p, zero);
    return {-__builtin_inff(), 0.0F};
  }
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t top[kVectors] = {lowest, lowest, lowest, lowest};
  int64_t p = 0;
  for (; p + 4 * kVectors <= visible; p += 4 * kVectors) {
    for (int i = 0; i < kVectors; ++i) top[i] = vmaxq_f32(top[i], vmulq_n_f32(vld1q_f32(scores + p + 4 * i), scale));
  }
  for (; p < visible; p += 4) top[0] = vmaxq_f32(top[0], visible_scores(scores, p, visible, scale));
  const float m = vmaxvq_f32(vmaxq_f32(vmaxq_f32(top[0], top[1]), vmaxq_f32(top[2], top[3])));
  const float32x4_t most = vdupq_n_f32(m);
  float32x4_t sum = zero;
  p = 0;
  for (; p + 4 * kVectors <= visible; p += 4 * kVectors) {
    float32x4_t e[kVectors];
    for (int i = 0; i < kVectors; ++i) e[i] = vsubq_f32(vmulq_n_f32(vld1q_f32(scores + p + 4 * i), scale), most);
    exp_nonpositive(e);
    for (int i = 0; i < kVectors; ++i) {
      store(p + 4 * i, e[i]);
      sum = vaddq_f32(sum, e[i]);
    }
  }
  for (; p < padded; p += 4) {
    float32x4_t e[1] = {vsubq_f32(visible_scores(scores, p, visible, scale), most)};
    exp_nonpositive(e);
    store(p, e[0]);
    sum = vaddq_f32(sum, e[0]);
  }
  return {m, vaddvq_f32(sum)};
}

}  // namespace
}  // namespace inferno
