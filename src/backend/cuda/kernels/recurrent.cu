// Layers that carry a state from token to token: a short convolution, the gated delta rule, Mamba-2.
//
// The tokens of a sequence are taken one after another in a fixed order, so that chunks of a prompt and other sequences
// of a step change no bit. A state is read once, kept in registers over the step's tokens of its sequence, and written
// back; a sequence that begins (position 0) begins with zeros.
#include "backend/cuda/kernels/activation_functions.cuh"
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

// The step's tokens of a sequence.
struct Tokens {
  int begin = 0;
  int end = 0;
  bool begins = false;  // at position 0
};
__device__ __forceinline__ Tokens tokens_of(const StepBatch& batch, int sequence) {
  Tokens t;
  t.begin = batch.q_begin[sequence];
  t.end = batch.q_begin[sequence + 1];
  t.begins = t.begin < t.end && batch.pos[t.begin] == 0;
  return t;
}

// ---- a convolution: one thread per (channel, sequence)

constexpr int kConvThreads = 128;
constexpr int kConvAhead = 8;  // tokens whose inputs are loaded before the first is used

template <int kTaps>
__global__ void short_conv_kernel(const __grid_constant__ ShortConv a) {
  let_next_start();
  wait_for_previous();
  const int64_t channel = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  const auto sequence = static_cast<int>(blockIdx.y);
  const Tokens tokens = tokens_of(a.batch, sequence);
  if (channel >= a.channels || tokens.begin >= tokens.end) return;
  float* state = a.state + int64_t{a.batch.state_slot[sequence]} * (kTaps - 1) * a.channels + channel;
  float weight[kTaps];
  float last[kTaps];  // inputs, the oldest first; the newest is this token's
#pragma unroll
  for (int k = 0; k < kTaps; ++k) weight[k] = a.weight[channel * kTaps + k];
#pragma unroll
  for (int k = 0; k < kTaps - 1; ++k) last[k] = tokens.begins ? 0.0F : load_fresh(state + k * a.channels);
  last[kTaps - 1] = 0;
  const float bias = a.bias != nullptr ? a.bias[channel] : 0.0F;
  for (int first = tokens.begin; first < tokens.end; first += kConvAhead) {
    // out may be x: a thread has read what it overwrites, and no other thread reads it.
    float inputs[kConvAhead];
    float gates[kConvAhead];
#pragma unroll
    for (int i = 0; i < kConvAhead; ++i) {
      const int64_t at = int64_t{min(first + i, tokens.end - 1)} * a.channels + channel;
      inputs[i] = load_fresh(a.x + at);
      if (a.factor != nullptr) inputs[i] *= load_fresh(a.factor + at);
      gates[i] = a.gate != nullptr ? load_fresh(a.gate + at) : 1.0F;
    }
#pragma unroll
    for (int i = 0; i < kConvAhead; ++i) {
      if (first + i >= tokens.end) break;
      last[kTaps - 1] = inputs[i];
      float sum = weight[0] * last[0];
#pragma unroll
      for (int k = 1; k < kTaps; ++k) sum = fmaf(weight[k], last[k], sum);
      sum += bias;
      if (a.silu) sum = activate(inferno::Activation::silu, sum);
      a.out[int64_t{first + i} * a.channels + channel] = sum * gates[i];
#pragma unroll
      for (int k = 0; k < kTaps - 1; ++k) last[k] = last[k + 1];
    }
  }
#pragma unroll
  for (int k = 0; k < kTaps - 1; ++k) state[k * a.channels] = last[k];
}

// ---- matrices: a warp has kColumns columns of a head's matrix. Lane l has rows l, l + 32, ... of them, so that sums
// over rows are sums over the warp.

constexpr int kColumns = 4;
constexpr int kMatrixWarps = 4;

template <int kRows>
struct Columns {
  float m[kRows][kColumns];

  // `at`: the first of these columns in the matrix [rows, cols]; cols is a multiple of kColumns.
  __device__ __forceinline__ void load(const float* at, int rows, int cols, bool zero, int lane) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = r * kWarp + lane;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        m[r][c] = zero || row >= rows ? 0.0F : load_fresh(at + int64_t{row} * cols + c);
    }
  }
  __device__ __forceinline__ void store(float* at, int rows, int cols, int lane) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = r * kWarp + lane;
      if (row >= rows) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[int64_t{row} * cols + c] = m[r][c];
    }
  }
  // out[c] = sum over rows of x * m
  __device__ __forceinline__ void multiply(const float* x, float* out) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum = fmaf(x[r], m[r][c], sum);
      out[c] = warp_sum(sum);
    }
  }
};

// A lane's elements of a vector in memory; zero beyond it.
template <int kRows>
__device__ __forceinline__ void load_vector(const float* from, int count, int lane, float* v) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = r * kWarp + lane;
    v[r] = i < count ? load_fresh(from + i) : 0.0F;
  }
}

// What a warp works on: columns [first, first + kColumns) of a head of a sequence.
struct MatrixShare {
  int sequence, head, first;
};
__device__ __forceinline__ MatrixShare matrix_share() {
  return {static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.x * kMatrixWarps + threadIdx.x / kWarp) * kColumns};
}

template <int kRows>
__global__ void delta_net_kernel(const __grid_constant__ DeltaNet a) {
  // Added to the squares of q and k before they are scaled to unit length.
  constexpr float kUnitEps = 1e-6F;
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int d = a.head_dim;
  const MatrixShare share = matrix_share();
  const Tokens tokens = tokens_of(a.batch, share.sequence);
  if (share.first >= d || tokens.begin >= tokens.end) return;
  const int h = share.head;
  const int k_head = a.grouped ? h / (a.v_heads / a.k_heads) : h % a.k_heads;
  const int64_t width = int64_t{2 * a.k_heads + a.v_heads} * d;
  const int64_t slot = a.batch.state_slot[share.sequence];
  float* matrix = a.state + (slot * a.v_heads + h) * d * d + share.first;
  Columns<kRows> columns;
  columns.load(matrix, d, d, tokens.begins, lane);
  const float decay_rate = a.a[h];
  const float dt = a.dt[h];
  const float q_scale = 1.0F / sqrtf(static_cast<float>(d));

  // The next token's inputs are loaded while this one is computed.
  struct Inputs {
    float q[kRows], k[kRows];
    float v[kColumns];
    float alpha, beta;
  };
  const auto load = [&](int t, Inputs& in) {
    const float* row = a.qkv + t * width;
    load_vector<kRows>(row + k_head * d, d, lane, in.q);
    load_vector<kRows>(row + (a.k_heads + k_head) * d, d, lane, in.k);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) in.v[c] = load_fresh(row + int64_t{2 * a.k_heads + h} * d + share.first + c);
    in.alpha = load_fresh(a.alpha + int64_t{t} * a.v_heads + h);
    in.beta = load_fresh(a.beta + int64_t{t} * a.v_heads + h);
  };
  Inputs next;
  load(tokens.begin, next);
#pragma unroll 1
  for (int t = tokens.begin; t < tokens.end; ++t) {
    Inputs in = next;
    if (t + 1 < tokens.end) load(t + 1, next);
    float q_squares = 0;
    float k_squares = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      q_squares = fmaf(in.q[r], in.q[r], q_squares);
      k_squares = fmaf(in.k[r], in.k[r], k_squares);
    }
    const float q_factor = q_scale / sqrtf(warp_sum(q_squares) + kUnitEps);
    const float k_factor = 1.0F / sqrtf(warp_sum(k_squares) + kUnitEps);
    const float decay = expf(decay_rate * softplus(in.alpha + dt));
    const float beta = sigmoid(in.beta);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      in.q[r] *= q_factor;
      in.k[r] *= k_factor;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) columns.m[r][c] *= decay;
    }
    float seen[kColumns];
    columns.multiply(in.k, seen);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float change = beta * (in.v[c] - seen[c]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) columns.m[r][c] = fmaf(in.k[r], change, columns.m[r][c]);
    }
    float out[kColumns];
    columns.multiply(in.q, out);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane == c) a.out[(int64_t{t} * a.v_heads + h) * d + share.first + c] = out[c];
    }
  }
  columns.store(matrix, d, d, lane);
}

template <int kRows>
__global__ void mamba2_kernel(const __grid_constant__ Mamba2 a) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int d = a.head_dim;
  const int n = a.state_size;
  const MatrixShare share = matrix_share();
  const Tokens tokens = tokens_of(a.batch, share.sequence);
  if (share.first >= d || tokens.begin >= tokens.end) return;
  const int h = share.head;
  const int group = h / (a.heads / a.groups);
  const int64_t inner = int64_t{a.heads} * d;
  const int64_t width = inner + int64_t{2} * a.groups * n;
  const int64_t slot = a.batch.state_slot[share.sequence];
  float* matrix = a.state + (slot * a.heads + h) * n * d + share.first;
  Columns<kRows> columns;
  columns.load(matrix, n, d, tokens.begins, lane);
  const float decay_rate = a.a[h];
  const float dt_bias = a.dt_bias[h];
  const float skip = a.skip[h];

  struct Inputs {
    float b[kRows], c[kRows];
    float x[kColumns];
    float dt;
  };
  const auto load = [&](int t, Inputs& in) {
    const float* row = a.xbc + t * width;
    load_vector<kRows>(row + inner + int64_t{group} * n, n, lane, in.b);
    load_vector<kRows>(row + inner + int64_t{a.groups + group} * n, n, lane, in.c);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) in.x[c] = load_fresh(row + int64_t{h} * d + share.first + c);
    in.dt = load_fresh(a.dt + int64_t{t} * a.heads + h);
  };
  Inputs next;
  load(tokens.begin, next);
#pragma unroll 1
  for (int t = tokens.begin; t < tokens.end; ++t) {
    const Inputs in = next;
    if (t + 1 < tokens.end) load(t + 1, next);
    const float step = softplus(in.dt + dt_bias);
    const float decay = expf(decay_rate * step);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float input = step * in.x[c];
#pragma unroll
      for (int r = 0; r < kRows; ++r) columns.m[r][c] = fmaf(in.b[r], input, decay * columns.m[r][c]);
    }
    float out[kColumns];
    columns.multiply(in.c, out);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane == c) a.out[(int64_t{t} * a.heads + h) * d + share.first + c] = fmaf(skip, in.x[c], out[c]);
    }
  }
  columns.store(matrix, n, d, lane);
}

LaunchShape matrix_shape(int cols, int heads, int sequences) {
  return {dim3(static_cast<unsigned>(divide_up(cols, kColumns * kMatrixWarps)), static_cast<unsigned>(heads),
               static_cast<unsigned>(sequences)),
          dim3(kMatrixWarps * kWarp), 0};
}

// Calls visit.template operator()<kRows>() with the rows that a lane has.
template <typename Visit>
void with_rows(int rows, Visit&& visit) {
  static_assert(kMaxStateRows == 8 * kWarp);
  if (rows <= kWarp) return visit.template operator()<1>();
  if (rows <= 2 * kWarp) return visit.template operator()<2>();
  if (rows <= 4 * kWarp) return visit.template operator()<4>();
  visit.template operator()<8>();
}

}  // namespace

void launch_short_conv(const LaunchContext& c, const ShortConv& task) {
  const LaunchShape shape{dim3(static_cast<unsigned>(divide_up<int64_t>(task.channels, kConvThreads)),
                               static_cast<unsigned>(task.batch.sequences)),
                          dim3(kConvThreads), 0};
  static_assert(kMaxConvTaps == 8);
  switch (task.taps) {
    case 1:
      return launch(c, shape, short_conv_kernel<1>, task);
    case 2:
      return launch(c, shape, short_conv_kernel<2>, task);
    case 3:
      return launch(c, shape, short_conv_kernel<3>, task);
    case 4:
      return launch(c, shape, short_conv_kernel<4>, task);
    case 5:
      return launch(c, shape, short_conv_kernel<5>, task);
    case 6:
      return launch(c, shape, short_conv_kernel<6>, task);
    case 7:
      return launch(c, shape, short_conv_kernel<7>, task);
    default:
      return launch(c, shape, short_conv_kernel<8>, task);
  }
}

void launch_delta_net(const LaunchContext& c, const DeltaNet& task) {
  const LaunchShape shape = matrix_shape(task.head_dim, task.v_heads, task.batch.sequences);
  with_rows(task.head_dim, [&]<int kRows>() { launch(c, shape, delta_net_kernel<kRows>, task); });
}

void launch_mamba2(const LaunchContext& c, const Mamba2& task) {
  const LaunchShape shape = matrix_shape(task.head_dim, task.heads, task.batch.sequences);
  with_rows(task.state_size, [&]<int kRows>() { launch(c, shape, mamba2_kernel<kRows>, task); });
}

}  // namespace inferno::cuda
