// The projections into attention on the CPU, and the attention of one token that follows without a barrier.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/products.h"
#include "backend/op_extras.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

// Keys and values before they are stored in the cache, [T, kv_heads * head_dim] each, in shared memory.
struct NewRows {
  float* k = nullptr;
  float* v = nullptr;
  std::byte* rest = nullptr;  // of the shared memory
};
NewRows new_rows(const QkvRopeStoreArgs& a, const Worker& w) {
  const int64_t bytes = matrix_bytes(a.x.rows(), a.w[1]->rows());
  return {reinterpret_cast<float*>(w.shared), reinterpret_cast<float*>(w.shared + bytes), w.shared + 2 * bytes};
}

// This worker's rows of the three products; done(product, rows) after each range of them.
template <typename Done>
void project_qkv(const QkvRopeStoreArgs& a, const NewRows& to, const Worker& w, Done done) noexcept {
  const int64_t tokens = a.x.rows();
  const Prepared x = prepare(input_of(a.x, a.norm, a.eps), {a.w[0], a.w[1], a.w[2]}, kConvert, to.rest,
                             w.local + kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens), w);
  const std::array<float*, 3> out = {a.q.f32(), to.k, to.v};
  std::array<Projection, 3> products;
  for (size_t i = 0; i < 3; ++i) {
    products[i] = {a.w[i], x.buffer[i], nullptr, vector_or_null(a.bias[i]), out[i]};
  }
  project(products, 0, tokens, w.local, w, done);
}

// Head h of token t (query heads first, then key heads): norm and rotation, and for a key head its rows of the cache.
void finish_head(const QkvRopeStoreArgs& a, const NewRows& rows, int64_t t, int64_t h, const Worker& w) noexcept {
  const int64_t d = a.kv.head_dim;
  const int64_t q_heads = a.q.cols() / d;
  const int64_t kv_row = t * a.w[1]->rows() + (h - q_heads) * d;
  const bool query = h < q_heads;
  float* head = query ? a.q.f32() + t * a.q.cols() + h * d : rows.k + kv_row;
  const Weight* norm = query ? a.q_norm : a.k_norm;
  if (norm != nullptr) w.kernels->rms_norm(head, cpu(norm).vector(), a.eps, head, d);
  rope_head(head, a.rope, a.batch.pos[t], *w.kernels);
  if (!query) store_kv_row(a.kv, a.batch.slot[t], h - q_heads, head, rows.v + kv_row, *w.kernels);
}

}  // namespace

// ---- qkv_rope_store: norm and convert | three products | QK-norm, rotation and cache rows, per token and head

OpScratch scratch_of(const QkvRopeStoreArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  if (!is_plain(a)) return general_scratch(a);
  const int64_t tokens = a.x.rows();
  const int64_t k = a.x.cols();
  return {.shared = 2 * matrix_bytes(tokens, a.w[1]->rows()) + prepared_bytes({a.w[0], a.w[1], a.w[2]}, tokens, k),
          .local = kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens) +
                   prepared_bytes({a.w[0], a.w[1], a.w[2]}, kRedundantTokens, k)};
}

void run(const QkvRopeStoreArgs& a, const Worker& w) noexcept {
  if (!is_plain(a)) {
    run_general(a, w);
    return;
  }
  const NewRows rows = new_rows(a, w);
  project_qkv(a, rows, w, [](size_t /*product*/, Range /*rows*/) {});
  w.barrier();
  const int64_t heads = a.q.cols() / a.kv.head_dim + a.kv.kv_heads;
  w.for_chunks(kFinish, {a.x.rows() * heads, 1}, 1, [&](Range items) {
    for (int64_t item = items.begin; item < items.end; ++item) finish_head(a, rows, item / heads, item % heads, w);
  });
}

void weight_ranges(const QkvRopeStoreArgs& a, const Worker& w, WeightRanges& ranges) {
  for (const Weight* weight : a.w) {
    if (weight != nullptr) ranges.add(slice_of(weight, w));
  }
}

// ---- with attention: norm and convert | three products; the worker that completes the rows of a kv head: its query
// heads and its key as above, attention, and its columns of the output projection's input

JoinedAttention joined_attention(const Plan& plan, size_t op, const Worker& w) {
  if (w.counts == nullptr || plan[op].op() != OpId::qkv_rope_store) return {};
  if (op + 1 == plan.size() || plan[op + 1].op() != OpId::attention) return {};
  const auto& a = plan[op].args<QkvRopeStoreArgs>();
  const auto& attention = plan[op + 1].args<AttentionArgs>();
  const bool fits = is_plain(a) && a.private_result && a.x.rows() == 1 && attention.kv.k == a.kv.k &&
                    a.kv.kv_heads <= kUnitQueues * w.nth && !splits_spans(attention, w.nth);
  if (!fits) return {};
  if (op + 2 == plan.size() || plan[op + 2].op() != OpId::linear) return {&attention};
  const auto& output = plan[op + 2].args<LinearArgs>();
  const ActivationLayout& layout = *cpu(output.w[0]).kernel().activation;
  const bool converts = attention.private_result && output.x.cols() == attention.out.cols() && output.rows.empty() &&
                        output.w[1] == nullptr && layout.prepare_columns != nullptr &&
                        attention.out.cols() / a.kv.kv_heads % layout.block == 0;
  return {&attention, converts ? &output : nullptr};
}

void run(const QkvRopeStoreArgs& a, const JoinedAttention& joined, const Worker& w, uint64_t* ticks) noexcept {
  const NewRows rows = new_rows(a, w);
  const int64_t d = a.kv.head_dim;
  const int64_t q_heads = a.q.cols() / d;
  const int64_t group = q_heads / a.kv.kv_heads;
  std::byte* local = w.local + scratch_of(a, *w.kernels, w.nth).local;
  const auto attend = [&](int64_t kv_head) {
    const uint64_t begin = ticks != nullptr ? cpu_ticks() : 0;
    const Range heads = {kv_head * group, (kv_head + 1) * group};
    for (int64_t h = heads.begin; h < heads.end; ++h) finish_head(a, rows, 0, h, w);
    finish_head(a, rows, 0, q_heads + kv_head, w);
    attend_head(*joined.attention, kv_head, local, *w.kernels);
    if (joined.output != nullptr) {
      cpu(joined.output->w[0])
          .kernel()
          .activation->prepare_columns(joined.attention->out.f32(), q_heads * d, heads.begin * d, heads.end * d,
                                       w.converted);
    }
    if (ticks != nullptr) *ticks += cpu_ticks() - begin;
  };
  project_qkv(a, rows, w, [&](size_t product, Range produced) {
    // One completion count per kv head for its rows of all three products.
    count_completed(
        w.counts, kUnits, w.nth, produced, product == 0 ? group * d : d,
        [&](int64_t /*kv_head*/) { return (group + 2) * d; }, attend);
  });
}

}  // namespace inferno::cpu
