// The ops that carry a state from token to token, on the CPU: the short convolution and the gated delta rule. Mamba-2
// is in ops_mamba2.cpp.
//
// Workers divide channels, or value heads; what one computes does not depend on the others, so there is no barrier. The
// tokens of a sequence follow each other in one order and the sums over a head in another that is fixed, so that
// chunks, threads and batch mates change no bit.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"
#include "backend/cpu/quad.h"

namespace inferno::cpu {
namespace {

constexpr int kItems = 0;  // the only work queue

// ---- short_conv

// Channels that are convolved together; slices are multiples of it.
constexpr int64_t kChannels = 64;
using Channels = std::array<float, kChannels>;

struct ConvBlock {
  int64_t first;
  int64_t count;
  int64_t taps;
  std::array<Channels, kMaxConvTaps> weight;
  // The last inputs: that of position p at p % taps.
  std::array<Channels, kMaxConvTaps> inputs;
};

ConvBlock load_block(const ShortConvArgs& a, int64_t first) noexcept {
  ConvBlock block;
  block.first = first;
  block.count = std::min(kChannels, a.x.cols() - first);
  block.taps = a.weight->cols() / a.x.cols();
  const float* weight = cpu(a.weight).vector() + first * block.taps;
  for (int64_t c = 0; c < block.count; ++c) {
    for (int64_t k = 0; k < block.taps; ++k) {
      block.weight[static_cast<size_t>(k)][static_cast<size_t>(c)] = weight[c * block.taps + k];
    }
  }
  return block;
}

// The inputs before position p, from the state or back into it.
template <typename F>
void for_earlier_inputs(ConvBlock& block, int64_t p, float* state, int64_t channels, F f) noexcept {
  for (int64_t k = 0; k < block.taps - 1; ++k) {
    f(block.inputs[static_cast<size_t>((p + 1 + k) % block.taps)].data(), state + k * channels + block.first);
  }
}

void convolve_token(const ShortConvArgs& a, ConvBlock& block, int64_t token, int64_t p, const Worker& w) noexcept {
  const int64_t at = token * a.x.cols() + block.first;
  float* own = block.inputs[static_cast<size_t>(p % block.taps)].data();
  if (a.factor.empty()) {
    std::copy_n(a.x.f32() + at, block.count, own);
  } else {
    w.kernels->hadamard(a.x.f32() + at, a.factor.f32() + at, own, block.count);
  }
  Channels sum{};
  for (int64_t k = 0; k < block.taps; ++k) {
    const float* input = block.inputs[static_cast<size_t>((p + 1 + k) % block.taps)].data();
    const float* weight = block.weight[static_cast<size_t>(k)].data();
    for (int64_t c = 0; c < block.count; ++c) sum[static_cast<size_t>(c)] += weight[c] * input[c];
  }
  float* out = a.out.f32() + at;
  if (a.bias != nullptr) w.kernels->add(sum.data(), cpu(a.bias).vector() + block.first, sum.data(), block.count);
  if (a.silu) w.kernels->silu(sum.data(), sum.data(), block.count);
  if (a.gate.empty()) {
    std::copy_n(sum.data(), block.count, out);
  } else {
    w.kernels->hadamard(sum.data(), a.gate.f32() + at, out, block.count);
  }
}

void convolve(const ShortConvArgs& a, int64_t first, const Worker& w) noexcept {
  ConvBlock block = load_block(a, first);
  const StepBatch& batch = a.batch;
  for (int32_t s = 0; s < batch.sequences; ++s) {
    const int32_t begin = batch.q_begin[s];
    const int32_t end = batch.q_begin[s + 1];
    if (begin == end) continue;
    float* state = a.state.f32() + batch.state_slot[s] * a.state.cols();
    const int64_t p = batch.pos[begin];
    for_earlier_inputs(block, p, state, a.x.cols(), [&](float* input, const float* kept) {
      if (p == 0) {
        std::fill_n(input, block.count, 0.0F);
      } else {
        std::copy_n(kept, block.count, input);
      }
    });
    for (int32_t t = begin; t < end; ++t) convolve_token(a, block, t, batch.pos[t], w);
    for_earlier_inputs(block, batch.pos[end - 1] + 1, state, a.x.cols(),
                       [&](const float* input, float* kept) { std::copy_n(input, block.count, kept); });
  }
}

// ---- delta_net

// Tokens whose queries and keys are prepared at a time.
constexpr int64_t kTokens = 64;
constexpr float kUnitEps = 1e-6F;

// One value head over some tokens.
struct HeadTask {
  int64_t tokens;
  int64_t head_dim;
  const float *q, *k;         // [tokens, head_dim]
  const float *decay, *beta;  // [tokens]
  const float* v;             // token t's at v + t * v_stride
  int64_t v_stride;
  float* out;  // the same
  int64_t out_stride;
  float* state;  // [head_dim, head_dim], keys by values
};

// The columns [first, first + kQuads * 4) of the state, token by token. They stay in a core's own cache meanwhile.
template <int kQuads>
void recur(const HeadTask& h, int64_t first) noexcept {
  float* const state = h.state + first;
  for (int64_t t = 0; t < h.tokens; ++t) {
    const float* k = h.k + t * h.head_dim;
    const float* q = h.q + t * h.head_dim;
    const float decay = h.decay[t];
    std::array<Quad, kQuads> seen{};
    for (int64_t j = 0; j < h.head_dim; ++j) {
      for (int i = 0; i < kQuads; ++i) seen[i] += k[j] * load(state + j * h.head_dim + i * kQuad);
    }
    std::array<Quad, kQuads> change;
    for (int i = 0; i < kQuads; ++i) {
      change[i] = h.beta[t] * (load(h.v + t * h.v_stride + first + i * kQuad) - decay * seen[i]);
    }
    std::array<Quad, kQuads> out{};
    for (int64_t j = 0; j < h.head_dim; ++j) {
      for (int i = 0; i < kQuads; ++i) {
        float* const at = state + j * h.head_dim + i * kQuad;
        const Quad next = decay * load(at) + k[j] * change[i];
        store(at, next);
        out[i] += q[j] * next;
      }
    }
    for (int i = 0; i < kQuads; ++i) store(h.out + t * h.out_stride + first + i * kQuad, out[i]);
  }
}

void scale_to_unit(const float* x, float length, float* out, int64_t n, const KernelTable& kernels) noexcept {
  kernels.scale(x, length / std::sqrt(kernels.sum_squares(x, n) + kUnitEps), out, n);
}

float sigmoid(float x) noexcept {
  return 1 / (1 + std::exp(-x));
}

// Of local memory: queries, keys, decays and betas of kTokens tokens.
int64_t piece_floats(int64_t head_dim) {
  return kTokens * (2 * head_dim + 2);
}

// Tokens [begin, begin + count), at most kTokens of one sequence.
void run_piece(const DeltaNetArgs& a, int64_t head, int64_t begin, int64_t count, float* state,
               const Worker& w) noexcept {
  const int64_t d = a.head_dim();
  const int64_t v_heads = a.v_heads();
  const int64_t k_head = a.grouped ? head / (v_heads / a.k_heads) : head % a.k_heads;
  auto* q = reinterpret_cast<float*>(w.local);
  float* k = q + kTokens * d;
  float* decay = k + kTokens * d;
  float* beta = decay + kTokens;
  for (int64_t t = 0; t < count; ++t) {
    const float* row = a.qkv.f32() + (begin + t) * a.qkv.cols();
    scale_to_unit(row + k_head * d, 1 / std::sqrt(static_cast<float>(d)), q + t * d, d, *w.kernels);
    scale_to_unit(row + (a.k_heads + k_head) * d, 1, k + t * d, d, *w.kernels);
    const int64_t at = (begin + t) * v_heads + head;
    decay[t] = std::exp(cpu(a.a).vector()[head] * softplus(a.alpha.f32()[at] + cpu(a.dt).vector()[head]));
    beta[t] = sigmoid(a.beta.f32()[at]);
  }
  const HeadTask task{.tokens = count,
                      .head_dim = d,
                      .q = q,
                      .k = k,
                      .decay = decay,
                      .beta = beta,
                      .v = a.qkv.f32() + begin * a.qkv.cols() + (2 * a.k_heads + head) * d,
                      .v_stride = a.qkv.cols(),
                      .out = a.out.f32() + begin * a.out.cols() + head * d,
                      .out_stride = a.out.cols(),
                      .state = state};
  constexpr int kMany = 8;
  int64_t column = 0;
  for (; column + kMany * kQuad <= d; column += kMany * kQuad) recur<kMany>(task, column);
  for (; column < d; column += kQuad) recur<1>(task, column);
  for (int64_t t = 0; t < count; ++t) {
    float* out = task.out + t * task.out_stride;
    w.kernels->rms_norm(out, cpu(a.norm).vector(), a.eps, out, d);
    w.kernels->gated[static_cast<size_t>(Activation::silu)](a.z.f32() + (begin + t) * a.z.cols() + head * d, out, out,
                                                            d);
  }
}

void run_head(const DeltaNetArgs& a, int64_t head, const Worker& w) noexcept {
  const int64_t matrix = a.head_dim() * a.head_dim();
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t end = a.batch.q_begin[s + 1];
    int64_t begin = a.batch.q_begin[s];
    if (begin == end) continue;
    float* state = a.state.f32() + a.batch.state_slot[s] * a.state.cols() + head * matrix;
    if (a.batch.pos[begin] == 0) std::fill_n(state, matrix, 0.0F);
    for (; begin < end; begin += kTokens) run_piece(a, head, begin, std::min(kTokens, end - begin), state, w);
  }
}

}  // namespace

void run(const ShortConvArgs& a, const Worker& w) noexcept {
  w.for_chunks(kItems, {a.x.cols(), kChannels}, 1, [&](Range channels) {
    for (int64_t first = channels.begin; first < channels.end; first += kChannels) convolve(a, first, w);
  });
}

OpScratch scratch_of(const DeltaNetArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = matrix_bytes(1, piece_floats(a.head_dim()))};
}

void run(const DeltaNetArgs& a, const Worker& w) noexcept {
  for (int64_t head = w.next_item(kItems, -1); head < a.v_heads(); head = w.next_item(kItems, head)) {
    run_head(a, head, w);
  }
}

}  // namespace inferno::cpu
