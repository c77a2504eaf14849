// Mamba-2 on the CPU: heads | norms.
//
// Workers divide heads, then tokens. The tokens of a sequence follow each other in one order and the sums over a state
// in another that is fixed, so that chunks, threads and batch mates change no bit.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"
#include "backend/cpu/quad.h"

namespace inferno::cpu {
namespace {

constexpr int kScanHeads = 0;  // work queues
constexpr int kScanNorms = 1;
// Tokens whose steps and decays are computed at a time.
constexpr int64_t kScanTokens = 64;

// One head over tokens of one sequence.
struct ScanTask {
  int64_t tokens;
  int64_t head_dim;
  int64_t state_size;
  const float *x, *b, *c;  // token t's at x + t * stride
  int64_t stride;
  const float *decay, *step;  // [tokens]
  float skip;
  float* out;  // token t's at out + t * out_stride
  int64_t out_stride;
  float* state;  // [state_size, head_dim]
};

// The columns [first, first + kQuads * 4) of the state, token by token.
template <int kQuads>
void scan(const ScanTask& s, int64_t first) noexcept {
  float* const state = s.state + first;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float* b = s.b + t * s.stride;
    const float* c = s.c + t * s.stride;
    const float decay = s.decay[t];
    std::array<Quad, kQuads> x;
    std::array<Quad, kQuads> change;
    std::array<Quad, kQuads> out{};
    for (int i = 0; i < kQuads; ++i) {
      x[i] = load(s.x + t * s.stride + first + i * kQuad);
      change[i] = s.step[t] * x[i];
    }
    for (int64_t n = 0; n < s.state_size; ++n) {
      for (int i = 0; i < kQuads; ++i) {
        float* const at = state + n * s.head_dim + i * kQuad;
        const Quad next = decay * load(at) + b[n] * change[i];
        store(at, next);
        out[i] += c[n] * next;
      }
    }
    for (int i = 0; i < kQuads; ++i) store(s.out + t * s.out_stride + first + i * kQuad, out[i] + s.skip * x[i]);
  }
}

// Tokens [begin, begin + count), at most kScanTokens of one sequence.
void scan_piece(const Mamba2Args& a, int64_t head, int64_t begin, int64_t count, float* state,
                const Worker& w) noexcept {
  const int64_t d = a.head_dim();
  const int64_t n = a.state_size();
  auto* decay = reinterpret_cast<float*>(w.local);
  float* step = decay + kScanTokens;
  for (int64_t t = 0; t < count; ++t) {
    step[t] = softplus(a.dt.f32()[(begin + t) * a.heads() + head] + cpu(a.dt_bias).vector()[head]);
    decay[t] = std::exp(cpu(a.a).vector()[head] * step[t]);
  }
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
                      .state = state};
  constexpr int kMany = 8;
  int64_t column = 0;
  for (; column + kMany * kQuad <= d; column += kMany * kQuad) scan<kMany>(task, column);
  for (; column < d; column += kQuad) scan<1>(task, column);
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

OpScratch scratch_of(const Mamba2Args& /*a*/, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = matrix_bytes(2, kScanTokens)};
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
