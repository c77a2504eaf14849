// The projections into attention with norms of whole rows, a norm of v, v = k, no K and V, a gate, tables of its own
// for q, or values unlike keys: norm and convert | products | norms, rotation and cache rows, token by token.
#include <array>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/products.h"

namespace inferno::cpu {
namespace {

int64_t k_bytes(const QkvRopeStoreArgs& a) {
  return a.w[1] == nullptr ? 0 : matrix_bytes(a.x.rows(), a.w[1]->rows());
}
int64_t v_bytes(const QkvRopeStoreArgs& a) {
  return a.w[1] == nullptr ? 0 : matrix_bytes(a.x.rows(), int64_t{a.kv.kv_heads} * a.kv.value_dim());
}

void norm_and_rotate(float* row, int64_t cols, const Weight* norm, const QkvRopeStoreArgs& a, const RopeParams& rope,
                     int64_t position, const Worker& w) noexcept {
  const int64_t norm_cols = norm == nullptr ? cols : norm->cols();
  for (int64_t c = 0; c < cols && norm != nullptr; c += norm_cols) {
    w.kernels->rms_norm(row + c, cpu(norm).vector(), a.eps, row + c, norm_cols);
  }
  for (int64_t c = 0; c < cols; c += a.kv.head_dim) rope_head(row + c, rope, position, *w.kernels);
}

void finish_token(const QkvRopeStoreArgs& a, float* k_rows, float* v_rows, int64_t t, const Worker& w) noexcept {
  const int64_t position = a.batch.pos[t];
  RopeParams q_rope = a.rope;
  if (!a.q_rope.empty()) q_rope.table = a.q_rope;
  norm_and_rotate(a.q.f32() + t * a.q.cols(), a.q.cols(), a.q_norm, a, q_rope, position, w);
  if (a.w[1] == nullptr) return;
  const int64_t k_cols = a.w[1]->rows();
  const int64_t value_dim = a.kv.value_dim();
  const int64_t v_cols = a.kv.kv_heads * value_dim;
  float* k = k_rows + t * k_cols;
  float* v = v_rows + t * v_cols;
  if (a.w[2] == nullptr) std::copy_n(k, k_cols, v);
  for (int64_t c = 0; c < v_cols && a.v_norm; c += value_dim) {
    norm_row(v + c, nullptr, a.eps, v + c, value_dim, *w.kernels);
  }
  norm_and_rotate(k, k_cols, a.k_norm, a, a.rope, position, w);
  for (int64_t h = 0; h < a.kv.kv_heads; ++h) {
    store_kv_row(a.kv, a.batch.slot[t], h, k + h * a.kv.head_dim, v + h * value_dim, *w.kernels);
  }
}

}  // namespace

OpScratch general_scratch(const QkvRopeStoreArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t k = a.x.cols();
  return {.shared = k_bytes(a) + v_bytes(a) + prepared_bytes({a.w[0], a.w[1], a.w[2], a.w_gate}, tokens, k),
          .local = kernel_scratch({a.w[0], a.w[1], a.w[2], a.w_gate}, tokens) +
                   prepared_bytes({a.w[0], a.w[1], a.w[2], a.w_gate}, kRedundantTokens, k)};
}

void run_general(const QkvRopeStoreArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  auto* k = reinterpret_cast<float*>(w.shared);
  auto* v = reinterpret_cast<float*>(w.shared + k_bytes(a));
  const std::array<const Weight*, 4> weights = {a.w[0], a.w[1], a.w[2], a.w_gate};
  const std::array<float*, 4> out = {a.q.f32(), k, v, a.gate.f32()};
  const Prepared x = prepare(input_of(a.x, a.norm, a.eps), {a.w[0], a.w[1], a.w[2], a.w_gate}, kConvert,
                             w.shared + k_bytes(a) + v_bytes(a),
                             w.local + kernel_scratch({a.w[0], a.w[1], a.w[2], a.w_gate}, tokens), w);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == nullptr) continue;
    const Projection product{weights[i], x.buffer[i], nullptr, i < 3 ? vector_or_null(a.bias[i]) : nullptr, out[i]};
    // The gate's queue is the one that nothing else here uses.
    project({&product, 1}, i < 3 ? static_cast<int>(i) : kConvertAgain, tokens, w.local, w);
  }
  w.barrier();
  w.for_chunks(kFinish, {tokens, 1}, 1, [&](Range rows) {
    for (int64_t t = rows.begin; t < rows.end; ++t) finish_token(a, k, v, t, w);
  });
}

}  // namespace inferno::cpu
