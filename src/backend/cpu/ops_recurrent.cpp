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

namespace inferno::cpu {
namespace {

constexpr int kItems = 0;  // the only work queue

// ---- short_conv

// Channels that are convolved together: inputs and weights of 4 taps take a third of a core's first cache, and of every
// token there are enough bytes in a row to fetch them at the memory's speed.
constexpr int64_t kChannels = 512;
// Slices are multiples of it.
constexpr int64_t kChannelStep = 64;

struct ConvBlock {
  int64_t first;
  int64_t count;
  int64_t taps;
  float* weight;                            // [taps, count]
  std::array<float*, kMaxConvTaps> inputs;  // the last inputs [count]: that of position p at p % taps
};

ConvBlock load_block(const ShortConvArgs& a, int64_t first, int64_t count, const Worker& w) noexcept {
  ConvBlock block;
  block.first = first;
  block.count = count;
  block.taps = a.weight->cols() / a.x.cols();
  block.weight = reinterpret_cast<float*>(w.local);
  const float* weight = cpu(a.weight).vector() + first * block.taps;
  for (int64_t k = 0; k < block.taps; ++k) {
    for (int64_t c = 0; c < count; ++c) block.weight[k * count + c] = weight[c * block.taps + k];
    block.inputs[static_cast<size_t>(k)] = block.weight + (block.taps + k) * kChannels;
  }
  return block;
}

// The inputs before position p, from the state or back into it.
template <typename F>
void for_earlier_inputs(const ConvBlock& block, int64_t p, float* state, int64_t channels, F f) noexcept {
  for (int64_t k = 0; k < block.taps - 1; ++k) {
    f(block.inputs[static_cast<size_t>((p + 1 + k) % block.taps)], state + k * channels + block.first);
  }
}

void convolve_token(const ShortConvArgs& a, const ConvBlock& block, int64_t token, int64_t p,
                    const Worker& w) noexcept {
  const int64_t at = token * a.x.cols() + block.first;
  std::array<const float*, kMaxConvTaps> inputs;  // the oldest first
  for (int64_t k = 0; k < block.taps; ++k) {
    inputs[static_cast<size_t>(k)] = block.inputs[static_cast<size_t>((p + 1 + k) % block.taps)];
  }
  float* own = block.inputs[static_cast<size_t>(p % block.taps)];
  if (a.factor.empty()) {
    std::copy_n(a.x.f32() + at, block.count, own);
  } else {
    w.kernels->hadamard(a.x.f32() + at, a.factor.f32() + at, own, block.count);
  }
  float* out = a.out.f32() + at;
  w.kernels->convolve(inputs.data(), block.weight, block.taps, out, block.count);
  if (a.bias != nullptr) w.kernels->add(out, cpu(a.bias).vector() + block.first, out, block.count);
  if (a.silu) w.kernels->silu(out, out, block.count);
  if (!a.gate.empty()) w.kernels->hadamard(out, a.gate.f32() + at, out, block.count);
}

void convolve(const ShortConvArgs& a, int64_t first, int64_t count, const Worker& w) noexcept {
  const ConvBlock block = load_block(a, first, count, w);
  const StepBatch& batch = a.batch;
  for (int32_t s = 0; s < batch.sequences; ++s) {
    const int32_t begin = batch.q_begin[s];
    const int32_t end = batch.q_begin[s + 1];
    if (begin == end) continue;
    float* state = a.state.f32() + batch.state_slot[s] * a.state.cols();
    const int64_t p = batch.pos[begin];
    for_earlier_inputs(block, p, state, a.x.cols(), [&](float* input, const float* kept) {
      if (p == 0) {
        std::fill_n(input, count, 0.0F);
      } else {
        std::copy_n(kept, count, input);
      }
    });
    for (int32_t t = begin; t < end; ++t) convolve_token(a, block, t, batch.pos[t], w);
    for_earlier_inputs(block, batch.pos[end - 1] + 1, state, a.x.cols(),
                       [&](const float* input, float* kept) { std::copy_n(input, count, kept); });
  }
}

// ---- delta_net

// Tokens whose queries and keys are prepared at a time.
constexpr int64_t kTokens = 64;
constexpr float kUnitEps = 1e-6F;

void scale_to_unit(const float* x, float length, float* out, int64_t n, const KernelTable& kernels) noexcept {
  kernels.scale(x, length / std::sqrt(kernels.sum_squares(x, n) + kUnitEps), out, n);
}

// Of local memory: columns of a state; queries, keys, decays and betas of kTokens tokens.
int64_t piece_floats(int64_t head_dim) {
  return kMaxStateColumns * head_dim + kTokens * (2 * head_dim + 2);
}

// Tokens [begin, begin + count), at most kTokens of one sequence.
void run_piece(const DeltaNetArgs& a, int64_t head, int64_t begin, int64_t count, float* state,
               const Worker& w) noexcept {
  const int64_t d = a.head_dim();
  const int64_t v_heads = a.v_heads();
  const int64_t k_head = a.grouped ? head / (v_heads / a.k_heads) : head % a.k_heads;
  auto* scratch = reinterpret_cast<float*>(w.local);
  float* q = scratch + kMaxStateColumns * d;
  float* k = q + kTokens * d;
  float* decay = k + kTokens * d;
  float* beta = decay + kTokens;
  for (int64_t t = 0; t < count; ++t) {
    const float* row = a.qkv.f32() + (begin + t) * a.qkv.cols();
    scale_to_unit(row + k_head * d, 1 / std::sqrt(static_cast<float>(d)), q + t * d, d, *w.kernels);
    scale_to_unit(row + (a.k_heads + k_head) * d, 1, k + t * d, d, *w.kernels);
    const int64_t at = (begin + t) * v_heads + head;
    decay[t] = a.alpha.f32()[at] + cpu(a.dt).vector()[head];
    beta[t] = a.beta.f32()[at];
  }
  w.kernels->activate[static_cast<size_t>(Activation::softplus)](decay, decay, count);
  for (int64_t t = 0; t < count; ++t) decay[t] = std::exp(cpu(a.a).vector()[head] * decay[t]);
  w.kernels->activate[static_cast<size_t>(Activation::sigmoid)](beta, beta, count);
  const DeltaTask task{.tokens = count,
                       .head_dim = d,
                       .q = q,
                       .k = k,
                       .decay = decay,
                       .beta = beta,
                       .v = a.qkv.f32() + begin * a.qkv.cols() + (2 * a.k_heads + head) * d,
                       .v_stride = a.qkv.cols(),
                       .out = a.out.f32() + begin * a.out.cols() + head * d,
                       .out_stride = a.out.cols(),
                       .state = state,
                       .scratch = scratch};
  w.kernels->delta_rule(task);
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

OpScratch scratch_of(const ShortConvArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = matrix_bytes(2 * (a.weight->cols() / a.x.cols()), kChannels)};
}

void run(const ShortConvArgs& a, const Worker& w) noexcept {
  w.for_chunks(kItems, {a.x.cols(), kChannelStep}, 1, [&](Range channels) {
    for (int64_t first = channels.begin; first < channels.end; first += kChannels) {
      convolve(a, first, std::min(kChannels, channels.end - first), w);
    }
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
