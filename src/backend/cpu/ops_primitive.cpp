// Primitives on the CPU: each worker computes a slice of rows or elements.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kv_rows.h"
#include "backend/routing.h"

namespace inferno::cpu {
namespace {

// Element-wise work below this many elements stays on one thread.
constexpr int64_t kElementThreshold = 16384;

Range element_slice(const Worker& w, int64_t n) {
  return w.slice_if(n >= kElementThreshold, n, 16);
}
Range row_slice(const Worker& w, const Tensor& t) {
  return w.slice_if(t.elements() >= kElementThreshold, t.rows());
}

// a op b, where b has a's shape or is one row of it.
template <typename F>
void elementwise(const Tensor& a, const Tensor& b, const Tensor& out, const Worker& w, F kernel) {
  if (b.elements() == a.elements()) {
    const Range r = element_slice(w, a.elements());
    kernel(a.f32() + r.begin, b.f32() + r.begin, out.f32() + r.begin, r.end - r.begin);
    return;
  }
  const Range rows = row_slice(w, a);
  const int64_t cols = a.cols();
  for (int64_t i = rows.begin; i < rows.end; ++i) kernel(a.f32() + i * cols, b.f32(), out.f32() + i * cols, cols);
}

void copy_columns(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t cols, Range rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r) std::copy_n(from + r * from_stride, cols, to + r * to_stride);
}

void rope_row(float* row, int64_t cols, int64_t head_dim, const RopeParams& rope, int64_t position, const Worker& w) {
  for (int64_t first = 0; first < cols; first += head_dim) rope_head(row + first, rope, position, *w.kernels);
}

}  // namespace

void run(const AddArgs& a, const Worker& w) noexcept {
  elementwise(a.a, a.b, a.out, w, w.kernels->add);
}
void run(const HadamardArgs& a, const Worker& w) noexcept {
  elementwise(a.a, a.b, a.out, w, w.kernels->hadamard);
}

void run(const SiluArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  w.kernels->silu(a.x.f32() + r.begin, a.out.f32() + r.begin, r.end - r.begin);
}

void run(const ActivateArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  const auto f = static_cast<size_t>(a.activation);
  if (a.factor.empty()) {
    w.kernels->activate[f](a.x.f32() + r.begin, a.out.f32() + r.begin, r.size());
  } else {
    w.kernels->gated[f](a.x.f32() + r.begin, a.factor.f32() + r.begin, a.out.f32() + r.begin, r.size());
  }
}

void run(const SoftCapArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  w.kernels->soft_cap(a.x.f32() + r.begin, a.cap, a.out.f32() + r.begin, r.size());
}

void run(const ScaleArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  w.kernels->scale(a.x.f32() + r.begin, a.s, a.out.f32() + r.begin, r.end - r.begin);
}

void run(const AddScalarArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  for (int64_t i = r.begin; i < r.end; ++i) a.out.f32()[i] = a.x.f32()[i] + a.s;
}

void run(const RsqrtElemArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  for (int64_t i = r.begin; i < r.end; ++i) a.out.f32()[i] = 1.0F / std::sqrt(a.x.f32()[i]);
}

void run(const SumSquaresAxisArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  if (a.axis == 1) {
    const Range rows = row_slice(w, a.x);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      a.out.f32()[r] = w.kernels->sum_squares(a.x.f32() + r * cols, cols);
    }
    return;
  }
  const Range columns = w.slice_if(a.x.elements() >= kElementThreshold, cols, 16);
  for (int64_t c = columns.begin; c < columns.end; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < a.x.rows(); ++r) {
      const double value = a.x.f32()[r * cols + c];
      sum += value * value;
    }
    a.out.f32()[c] = static_cast<float>(sum);
  }
}

void run(const BroadcastRowScalarsArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.out.cols();
  const Range rows = row_slice(w, a.out);
  for (int64_t r = rows.begin; r < rows.end; ++r) std::fill_n(a.out.f32() + r * cols, cols, a.t.f32()[r]);
}

void run(const Transpose2dArgs& a, const Worker& w) noexcept {
  const int64_t rows = a.x.rows();
  const int64_t cols = a.x.cols();
  const Range out_rows = row_slice(w, a.out);
  for (int64_t c = out_rows.begin; c < out_rows.end; ++c) {
    for (int64_t r = 0; r < rows; ++r) a.out.f32()[c * rows + r] = a.x.f32()[r * cols + c];
  }
}

void run(const SoftmaxRowsArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const Range rows = row_slice(w, a.x);
  for (int64_t r = rows.begin; r < rows.end; ++r)
    w.kernels->softmax(a.x.f32() + r * cols, a.out.f32() + r * cols, cols);
}

void run(const ReshapeDataArgs& a, const Worker& w) noexcept {
  if (a.x.data == a.out.data) return;
  const Range r = element_slice(w, a.x.elements());
  std::copy(a.x.f32() + r.begin, a.x.f32() + r.end, a.out.f32() + r.begin);
}

void run(const MatmulArgs& a, const Worker& w) noexcept {
  const Range rows = w.slice_if(a.out.elements() * a.a.cols() >= kElementThreshold, a.out.rows());
  w.kernels->matmul(a.a.f32(), a.b.f32(), a.out.f32(), a.a.cols(), a.out.cols(), rows.begin, rows.end);
}

OpScratch scratch_of(const GatherRowsArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = row_bytes(a.table->dtype(), a.table->cols())};
}

void run(const GatherRowsArgs& a, const Worker& w) noexcept {
  const auto& table = static_cast<const CpuWeight&>(*a.table);
  const int64_t cols = a.out.cols();
  const Range rows = row_slice(w, a.out);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t row = a.indices.empty() ? a.first_row + r : a.indices.as<int32_t>()[r];
    if (row < 0) {
      std::fill_n(a.out.f32() + r * cols, cols, 0.0F);
    } else {
      table.dequantize(row, a.out.f32() + r * cols, w.local);
    }
  }
}

void run(const FillStrictUpperTriArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const Range rows = row_slice(w, a.x);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t first = std::clamp<int64_t>(r + a.offset + 1, 0, cols);
    std::fill(a.x.f32() + r * cols + first, a.x.f32() + (r + 1) * cols, a.value);
  }
}

void run(const FillStrictLowerTriArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const Range rows = row_slice(w, a.x);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    std::fill_n(a.x.f32() + r * cols, std::clamp<int64_t>(r + a.offset, 0, cols), a.value);
  }
}

void run(const Copy2dFromColsArgs& a, const Worker& w) noexcept {
  copy_columns(a.x.f32() + a.col_offset, a.x.cols(), a.out.f32(), a.out.cols(), a.out.cols(), row_slice(w, a.out));
}

void run(const Copy2dIntoColsArgs& a, const Worker& w) noexcept {
  copy_columns(a.src.f32(), a.src.cols(), a.dst.f32() + a.col_offset, a.dst.cols(), a.src.cols(), row_slice(w, a.src));
}

void run(const RepeatRowAsMatrixArgs& a, const Worker& w) noexcept {
  const float* row = a.x.empty() ? static_cast<const CpuWeight*>(a.weight_row)->vector() : a.x.f32();
  copy_columns(row, 0, a.out.f32(), a.out.cols(), a.out.cols(), row_slice(w, a.out));
}

void run(const ApplyRopeArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const Range rows = row_slice(w, a.x);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    rope_row(a.x.f32() + r * cols, cols, a.head_dim, a.rope, a.positions.as<int32_t>()[r], w);
  }
}

void run(const ApplyRopeSingleRowArgs& a, const Worker& w) noexcept {
  if (w.ith == 0) rope_row(a.x.f32(), a.x.elements(), a.head_dim, a.rope, a.position, w);
}

void run(const ConcatDim0Args& a, const Worker& w) noexcept {
  const int64_t cols = a.out.cols();
  const int64_t split = a.a.rows();
  const Range rows = row_slice(w, a.out);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* from = r < split ? a.a.f32() + r * cols : a.b.f32() + (r - split) * cols;
    std::copy_n(from, cols, a.out.f32() + r * cols);
  }
}

void run(const CopyRow2dArgs& a, const Worker& w) noexcept {
  if (w.ith == 0) std::copy_n(a.x.f32() + a.row * a.x.cols(), a.x.cols(), a.out.f32());
}

void run(const CopyContiguousIntoArgs& a, const Worker& w) noexcept {
  const Range r = element_slice(w, a.x.elements());
  std::copy(a.x.f32() + r.begin, a.x.f32() + r.end, a.dst.f32() + a.start + r.begin);
}

void run(const ArgmaxWithProbArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.x.cols();
  const Range rows = row_slice(w, a.x);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = a.x.f32() + r * cols;
    const float* best = std::max_element(x, x + cols);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(static_cast<double>(x[c] - *best));
    a.index.as<int32_t>()[r] = static_cast<int32_t>(best - x);
    a.prob.f32()[r] = static_cast<float>(1 / sum);
  }
}

// Scores, then the ids and weights of the experts in use.
OpScratch scratch_of(const RouteArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = (2 * a.logits.cols() + 2 * a.routing.used) * static_cast<int64_t>(sizeof(float))};
}

void run(const RouteArgs& a, const Worker& w) noexcept {
  const int64_t experts = a.logits.cols();
  auto* scores = reinterpret_cast<float*>(w.local);
  float* weights = scores + 2 * experts;
  auto* ids = reinterpret_cast<int32_t*>(weights + a.routing.used);
  const Range rows = row_slice(w, a.logits);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    route_row(a.logits.f32() + r * experts, a.selection_bias.f32(), experts, a.routing, scores, ids, weights);
    float* out = a.out.f32() + r * experts;
    std::fill_n(out, experts, 0.0F);
    for (int32_t j = 0; j < a.routing.used; ++j) out[ids[j]] = weights[j];
  }
}

}  // namespace inferno::cpu
