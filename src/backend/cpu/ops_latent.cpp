// Multi-head latent attention on the CPU: products of heads with matrices of their own, and the row that all share.
//
// A worker computes all of a head: there are as many heads as workers or more, and no barrier.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/products.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

constexpr int kLatentHeads = 0;  // work queues
constexpr int kLatentTokens = 1;

int64_t head_product_bytes(const Weight* w, int64_t tokens) {
  return kernel_scratch({w}, tokens) + round_up(cpu(w).kernel().activation->bytes(tokens, w->cols()), 64);
}

// Head h of all tokens: out[t * out_stride + r] = w[h] row r . x[t * x_stride ...]
void multiply_head(const Weight* weight, int64_t head, const float* x, int64_t x_stride, int64_t tokens, float* out,
                   int64_t out_stride, const Worker& w) noexcept {
  std::byte* input = w.local + kernel_scratch({weight}, tokens);
  const int64_t k = weight->cols();
  cpu(weight).kernel().activation->prepare(x, x_stride, tokens, k, 0, tokens, input);
  cpu(weight).kernel().run({.weight = cpu(weight).groups(head),
                            .activations = input,
                            .k = k,
                            .tokens = tokens,
                            .row_begin = 0,
                            .row_end = weight->shape()[1],
                            .out = out,
                            .out_stride = out_stride,
                            .accumulate = false,
                            .scratch = w.local});
}

}  // namespace

OpScratch scratch_of(const HeadLinearArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = head_product_bytes(a.w, a.x.rows())};
}

void run(const HeadLinearArgs& a, const Worker& w) noexcept {
  const int64_t n = a.w->shape()[1];
  for (int64_t h = w.next_item(kLatentHeads, -1); h < a.w->shape()[0]; h = w.next_item(kLatentHeads, h)) {
    multiply_head(a.w, h, a.x.f32() + h * a.w->cols(), a.x.cols(), a.x.rows(), a.out.f32() + h * n, a.out.cols(), w);
  }
}

// After the memory of products: a row of the cache.
OpScratch scratch_of(const LatentStoreArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = std::max(head_product_bytes(a.k_b, a.heads.rows()), matrix_bytes(1, a.latent.cols()))};
}

void run(const LatentStoreArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.heads.rows();
  const int64_t rotated = a.rope.rotated_dims;
  const int64_t latent = a.k_b->shape()[1];
  const int64_t kept = a.k_b->shape()[2];
  for (int64_t h = w.next_item(kLatentHeads, -1); h < a.k_b->shape()[0]; h = w.next_item(kLatentHeads, h)) {
    const float* head = a.heads.f32() + h * (kept + rotated);
    float* q = a.q.f32() + h * (latent + rotated);
    multiply_head(a.k_b, h, head, a.heads.cols(), tokens, q, a.q.cols(), w);
    for (int64_t t = 0; t < tokens; ++t) {
      float* turned = q + t * a.q.cols() + latent;
      std::copy_n(head + t * a.heads.cols() + kept, rotated, turned);
      rope_head(turned, a.rope, a.batch.pos[t], *w.kernels);
    }
  }
  auto* row = reinterpret_cast<float*>(w.local);
  w.for_chunks(kLatentTokens, {tokens, 1}, 1, [&](Range range) {
    for (int64_t t = range.begin; t < range.end; ++t) {
      std::copy_n(a.latent.f32() + t * a.latent.cols(), a.latent.cols(), row);
      w.kernels->rms_norm(row, cpu(a.norm).vector(), a.eps, row, latent);
      rope_head(row + latent, a.rope, a.batch.pos[t], *w.kernels);
      store_kv_row(a.kv, a.batch.slot[t], 0, row, nullptr, *w.kernels);
    }
  });
}

}  // namespace inferno::cpu
