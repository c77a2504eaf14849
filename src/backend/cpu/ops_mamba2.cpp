// Mamba-2 on the CPU: heads | norms.
//
// Workers divide heads, then tokens. The tokens of a sequence follow each other in one order and the sums over a state
// in another that is fixed, so that chunks, threads and batch mates change no bit.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"

namespace inferno::cpu {
namespace {

constexpr int kScanHeads = 0;  // work queues
constexpr int kScanNorms = 1;
// Tokens whose steps and decays are computed at a time.
constexpr int64_t kScanTokens = 64;

// Tokens [begin, begin + count), at most kScanTokens of one sequence.
void scan_piece(const Mamba2Args& a, int64_t head, int64_t begin, int64_t count, float* state,
                const Worker& w) noexcept {
  const int64_t d = a.head_dim();
  const int64_t n = a.state_size();
  auto* scratch = reinterpret_cast<float*>(w.local);
  float* decay = scratch + kMaxStateColumns * n;
  float* step = decay + kScanTokens;
  for (int64_t t = 0; t < count; ++t) {
    step[t] = a.dt.f32()[(begin + t) * a.heads() + head] + cpu(a.dt_bias).vector()[head];
  }
  w.kernels->activate[static_cast<size_t>(Activation::softplus)](step, step, count);
  for (int64_t t = 0; t < count; ++t) decay[t] = std::exp(cpu(a.a).vector()[head] * step[t]);
  const float* row = a.xbc.f32() + begin * a.xbc.cols();
  const float* b = row + a.z.cols() + head / (a.heads() / a.groups) * n;
  const ScanTask task{.tokens = count,
                      .head_dim = d,
                      .state_size = n,
                      .x = row + head * d,
                      .b = b,
                      .c = b + a.groups * n,
                      .stride = a.xbc.cols(),
                      .decay = decay,
                      .step = step,
                      .skip = cpu(a.skip).vector()[head],
                      .out = a.out.f32() + begin * a.out.cols() + head * d,
                      .out_stride = a.out.cols(),
                      .state = state,
                      .scratch = scratch};
  w.kernels->state_scan(task);
}

void scan_head(const Mamba2Args& a, int64_t head, const Worker& w) noexcept {
  const int64_t matrix = a.state_size() * a.head_dim();
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t end = a.batch.q_begin[s + 1];
    int64_t begin = a.batch.q_begin[s];
    if (begin == end) continue;
    float* state = a.state.f32() + a.batch.state_slot[s] * a.state.cols() + head * matrix;
    if (a.batch.pos[begin] == 0) std::fill_n(state, matrix, 0.0F);
    for (; begin < end; begin += kScanTokens) scan_piece(a, head, begin, std::min(kScanTokens, end - begin), state, w);
  }
}

}  // namespace

OpScratch scratch_of(const Mamba2Args& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = matrix_bytes(1, kMaxStateColumns * a.state_size() + 2 * kScanTokens)};
}

void run(const Mamba2Args& a, const Worker& w) noexcept {
  for (int64_t head = w.next_item(kScanHeads, -1); head < a.heads(); head = w.next_item(kScanHeads, head)) {
    scan_head(a, head, w);
  }
  w.barrier();
  const int64_t cols = a.out.cols() / a.groups;
  w.for_chunks(kScanNorms, {a.out.rows(), 1}, 1, [&](Range tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      float* out = a.out.f32() + t * a.out.cols();
      w.kernels->gated[static_cast<size_t>(Activation::silu)](a.z.f32() + t * a.z.cols(), out, out, a.z.cols());
      for (int64_t c = 0; c < a.out.cols(); c += cols) {
        w.kernels->rms_norm(out + c, cpu(a.norm).vector() + c, a.eps, out + c, cols);
      }
    }
  });
}

}  // namespace inferno::cpu
