// Layers that carry a state from token to token: a short convolution, the gated delta rule, Mamba-2.
//
// The tokens of a sequence are taken one after another in a fixed order, so that chunks of a prompt and other sequences
// of a step change no bit. A state is read once, kept in registers over the step's tokens of its sequence, and written
// back; a sequence that begins (position 0) begins with zeros.
#include "activations.h"

// Grid: x = channels, y = sequences. state [slots, (taps - 1) * channels]. out may be x: a thread has read what it
// overwrites, and no other reads it.
kernel void short_conv(constant ShortConvArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                       device const float* factor [[buffer(2)]], device const float* weight [[buffer(3)]],
                       device const float* bias [[buffer(4)]], device const float* gate [[buffer(5)]],
                       device float* state [[buffer(6)]], device const int* begins [[buffer(7)]],
                       device const int* positions [[buffer(8)]], device const int* slots [[buffer(9)]],
                       device float* out [[buffer(10)]],
                       uint3 position [[thread_position_in_grid]]) {
  uint channel = position.x;
  int begin = begins[position.y];
  int end = begins[position.y + 1];
  if (channel >= args.channels || begin >= end) return;
  uint unused = 8 - args.taps;  // the last taps are used, so that loops of constant length keep all in registers
  device float* own_state = state + ulong(slots[position.y]) * (args.taps - 1) * args.channels + channel;
  float taps[8];
  float last[8];  // inputs, the oldest first; the newest is this token's
  for (uint k = 0; k < 8; ++k) {
    taps[k] = k >= unused ? weight[ulong(channel) * args.taps + k - unused] : 0.0f;
    bool kept = k >= unused && k < 7 && positions[begin] != 0;
    last[k] = kept ? own_state[ulong(k - unused) * args.channels] : 0.0f;
  }
  for (int token = begin; token < end; ++token) {
    ulong at = ulong(token) * args.channels + channel;
    last[7] = args.has_factor != 0 ? x[at] * factor[at] : x[at];
    float sum = 0.0f;
    for (uint k = 0; k < 8; ++k) {
      if (k >= unused) sum += taps[k] * last[k];
    }
    if (args.has_bias != 0) sum += bias[channel];
    if (args.silu != 0) sum = activation_of(kSilu, sum);
    out[at] = args.has_gate != 0 ? sum * gate[at] : sum;
    for (uint k = 0; k < 7; ++k) last[k] = last[k + 1];
  }
  for (uint k = 0; k < 7; ++k) {
    if (k >= unused) own_state[ulong(k - unused) * args.channels] = last[k];
  }
}

// ---- matrices: a simdgroup has kColumns columns of a head's matrix of up to 256 rows. Lane l has rows l, l + 32, ...
// of them, so that sums over rows are sums over the simdgroup. Grid: x = ceil(columns / (kColumns * simdgroups)), y =
// heads, z = sequences.

constant uint kColumns = 4;
constant uint kLaneRows = 8;

struct Columns {
  float m[32];  // [kLaneRows][kColumns]
};

// `from`: the first of these columns in the matrix [rows, cols]. Rows that a lane lacks are zeros.
inline void load_columns(thread Columns& columns, device const float* from, uint rows, uint cols, bool zero,
                         uint lane) {
  for (uint r = 0; r < kLaneRows; ++r) {
    uint row = r * 32 + lane;
    for (uint c = 0; c < kColumns; ++c) {
      columns.m[r * kColumns + c] = zero || row >= rows ? 0.0f : from[ulong(row) * cols + c];
    }
  }
}
inline void store_columns(thread const Columns& columns, device float* to, uint rows, uint cols, uint lane) {
  for (uint r = 0; r < kLaneRows; ++r) {
    uint row = r * 32 + lane;
    if (row >= rows) continue;
    for (uint c = 0; c < kColumns; ++c) to[ulong(row) * cols + c] = columns.m[r * kColumns + c];
  }
}
// The sum over rows of x * column c, in every lane.
inline float multiply_column(thread const Columns& columns, thread const float* x, uint c) {
  float sum = 0.0f;
  for (uint r = 0; r < kLaneRows; ++r) sum += x[r] * columns.m[r * kColumns + c];
  return simd_sum(sum);
}
// A lane's elements of a vector: v[kLaneRows].
inline void load_lane(thread float* v, device const float* from, uint count, uint lane) {
  for (uint r = 0; r < kLaneRows; ++r) {
    uint i = r * 32 + lane;
    v[r] = i < count ? from[i] : 0.0f;
  }
}
// Scales a vector to unit length, and by `scale`.
inline void make_unit(thread float* v, float scale) {
  float squares = 0.0f;
  for (uint r = 0; r < kLaneRows; ++r) squares += v[r] * v[r];
  float by = scale * precise::rsqrt(simd_sum(squares) + 1e-6f);
  for (uint r = 0; r < kLaneRows; ++r) v[r] *= by;
}

// out [tokens, v_heads * head_dim]: q M of each head, before the norm.
kernel void delta_net(constant DeltaNetArgs& args [[buffer(0)]], device const float* qkv [[buffer(1)]],
                      device const float* betas [[buffer(2)]], device const float* alphas [[buffer(3)]],
                      device const float* decays [[buffer(4)]], device const float* dt [[buffer(5)]],
                      device float* state [[buffer(6)]], device const int* begins [[buffer(7)]],
                      device const int* positions [[buffer(8)]], device const int* slots [[buffer(9)]],
                      device float* out [[buffer(10)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint dim = args.head_dim;
  uint first = (group.x * simdgroups + simdgroup) * kColumns;
  uint head = group.y;
  int begin = begins[group.z];
  int end = begins[group.z + 1];
  if (first >= dim || begin >= end) return;
  uint k_head = args.grouped != 0 ? head / (args.v_heads / args.k_heads) : head % args.k_heads;
  device float* matrix = state + (ulong(slots[group.z]) * args.v_heads + head) * dim * dim + first;
  Columns columns;
  load_columns(columns, matrix, dim, dim, positions[begin] == 0, lane);
  for (int token = begin; token < end; ++token) {
    device const float* row = qkv + ulong(token) * (2 * args.k_heads + args.v_heads) * dim;
    float q[8];
    float k[8];
    load_lane(q, row + k_head * dim, dim, lane);
    load_lane(k, row + (args.k_heads + k_head) * dim, dim, lane);
    make_unit(q, precise::rsqrt(float(dim)));
    make_unit(k, 1.0f);
    ulong at = ulong(token) * args.v_heads + head;
    float decay = precise::exp(decays[head] * softplus(alphas[at] + dt[head]));
    float beta = sigmoid(betas[at]);
    for (uint i = 0; i < kLaneRows * kColumns; ++i) columns.m[i] *= decay;
    for (uint c = 0; c < kColumns; ++c) {
      float value = row[(2 * args.k_heads + head) * dim + first + c];
      float change = beta * (value - multiply_column(columns, k, c));
      for (uint r = 0; r < kLaneRows; ++r) columns.m[r * kColumns + c] += k[r] * change;
      float result = multiply_column(columns, q, c);
      if (lane == c) out[at * dim + first + c] = result;
    }
  }
  store_columns(columns, matrix, dim, dim, lane);
}

// xbc [tokens, heads * head_dim + 2 * groups * state_size]; out [tokens, heads * head_dim]: y of each head, before the
// gate and the norm.
kernel void mamba2(constant Mamba2Args& args [[buffer(0)]], device const float* xbc [[buffer(1)]],
                   device const float* dt [[buffer(2)]], device const float* decays [[buffer(3)]],
                   device const float* dt_bias [[buffer(4)]], device const float* skip [[buffer(5)]],
                   device float* state [[buffer(6)]], device const int* begins [[buffer(7)]],
                   device const int* positions [[buffer(8)]], device const int* slots [[buffer(9)]],
                   device float* out [[buffer(10)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint dim = args.head_dim;
  uint size = args.state_size;
  uint first = (group.x * simdgroups + simdgroup) * kColumns;
  uint head = group.y;
  int begin = begins[group.z];
  int end = begins[group.z + 1];
  if (first >= dim || begin >= end) return;
  uint own_group = head / (args.heads / args.groups);
  uint inner = args.heads * dim;
  device float* matrix = state + (ulong(slots[group.z]) * args.heads + head) * size * dim + first;
  Columns columns;
  load_columns(columns, matrix, size, dim, positions[begin] == 0, lane);
  for (int token = begin; token < end; ++token) {
    device const float* row = xbc + ulong(token) * (inner + 2 * args.groups * size);
    float b[8];
    float c[8];
    load_lane(b, row + inner + own_group * size, size, lane);
    load_lane(c, row + inner + (args.groups + own_group) * size, size, lane);
    ulong at = ulong(token) * args.heads + head;
    float step = softplus(dt[at] + dt_bias[head]);
    float decay = precise::exp(decays[head] * step);
    for (uint i = 0; i < kColumns; ++i) {
      float x = row[head * dim + first + i];
      for (uint r = 0; r < kLaneRows; ++r) {
        columns.m[r * kColumns + i] = decay * columns.m[r * kColumns + i] + b[r] * (step * x);
      }
      float result = multiply_column(columns, c, i);
      if (lane == i) out[at * dim + first + i] = result + skip[head] * x;
    }
  }
  store_columns(columns, matrix, size, dim, lane);
}
