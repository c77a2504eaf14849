// Attention over one span as plain loops.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/scalar/scalar.h"
#include "quant/quant.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace inferno {
namespace {

int64_t scratch_bytes(int64_t /*queries*/, int64_t head_dim) {
  // One cache row widened to f32, one query, and the scores of a span.
  return (2 * head_dim + kAttentionSpan) * static_cast<int64_t>(sizeof(float));
}

// Products follow the cache type: with a bf16 cache the query and the weights exp(score - m) are rounded to bf16 too,
// as the matrix units of faster tables do; sums are f32.
template <DType kType>
float rounded(float x) noexcept {
  return kType == DType::bf16 ? to_float(to_bf16(x)) : x;
}

template <DType kType>
const float* cache_row(const SpanTask& task, const void* const* pages, int64_t position, float* buffer) noexcept {
  const auto* row =
      static_cast<const char*>(pages[position / task.page_size]) + position % task.page_size * task.row_bytes;
  dequantize_row(kType, row, buffer, task.head_dim);
  return buffer;
}

template <DType kType>
void run(const SpanTask& task) noexcept {
  auto* row = static_cast<float*>(task.scratch);
  float* query = row + task.head_dim;
  float* scores = query + task.head_dim;
  for (int64_t i = 0; i < task.queries; ++i) {
    const int64_t visible = task.visible[i];
    for (int64_t j = 0; j < task.head_dim; ++j) query[j] = rounded<kType>(span_query(task, i)[j]);

    float m = -INFINITY;
    for (int64_t p = 0; p < visible; ++p) {
      const float* key = cache_row<kType>(task, task.k_pages, p, row);
      float sum = 0;
      for (int64_t j = 0; j < task.head_dim; ++j) sum = std::fma(query[j], key[j], sum);
      scores[p] = sum * task.scale;
      m = std::max(m, scores[p]);
    }

    float l = 0;
    float* o = task.o + i * task.head_dim;
    std::fill_n(o, task.head_dim, 0.0F);
    for (int64_t p = 0; p < visible; ++p) {
      const float weight = std::exp(scores[p] - m);
      l += weight;
      const float* value = cache_row<kType>(task, task.v_pages, p, row);
      for (int64_t j = 0; j < task.head_dim; ++j) o[j] = std::fma(rounded<kType>(weight), value[j], o[j]);
    }
    task.m[i] = m;
    task.l[i] = l;
  }
}

void merge_span(float* m, float* l, float* o, float span_m, float span_l, const float* span_o,
                int64_t head_dim) noexcept {
  const float top = std::max(*m, span_m);
  if (top == -INFINITY) return;  // neither side has seen a position
  const float keep = std::exp(*m - top);
  const float take = std::exp(span_m - top);
  *m = top;
  *l = *l * keep + span_l * take;
  for (int64_t j = 0; j < head_dim; ++j) o[j] = o[j] * keep + span_o[j] * take;
}

template <DType kType>
void set(KernelTable& table) {
  table.attention[static_cast<int>(kType)] = {"scalar", 16, scratch_bytes, run<kType>};
}

}  // namespace

void fill_scalar_attention(KernelTable& table) {
  table.merge_span = merge_span;
  set<DType::f32>(table);
  set<DType::f16>(table);
  set<DType::bf16>(table);
  set<DType::q8_0>(table);
}

}  // namespace inferno
