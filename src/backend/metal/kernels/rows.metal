// Kernels over rows: embedding look-up, norms, sums, activations.
#include "activations.h"
#include "formats.h"

// Grid: x = groups of 32 values of a row, y = ids.
template <typename F>
kernel void embed_blocks(constant EmbedArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                         device const int* ids [[buffer(2)]], device float* out [[buffer(3)]],
                         uint3 position [[thread_position_in_grid]]) {
  uint g = position.x;
  if (g >= args.weight.groups) return;
  Group group;
  load_group<F>(group, args.weight, weight, ulong(ids[position.y]) * args.weight.groups + g);
  device float* to = out + ulong(position.y) * args.weight.cols + g * 32;
  for (uint v = 0; v < 32; ++v) {
    to[v] = (group.scale[v / 16] * group.level[v] + group.minimum[v / 16]) * args.scale;
  }
}

template <int kKind>
kernel void embed_plain(constant EmbedArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                        device const int* ids [[buffer(2)]], device float* out [[buffer(3)]],
                        uint3 position [[thread_position_in_grid]]) {
  device const uchar* row = weight + args.weight.q + ulong(ids[position.y]) * args.weight.row_stride;
  device float* to = out + ulong(position.y) * args.weight.cols;
  uint last = min(position.x * 32 + 32, args.weight.cols);
  for (uint col = position.x * 32; col < last; ++col) to[col] = plain_value<kKind>(row, col) * args.scale;
}

typedef decltype(embed_plain<kPlainF32>) embed_plain_kernel;
template [[host_name("embed_f32")]] kernel embed_plain_kernel embed_plain<kPlainF32>;
template [[host_name("embed_f16")]] kernel embed_plain_kernel embed_plain<kPlainF16>;
template [[host_name("embed_bf16")]] kernel embed_plain_kernel embed_plain<kPlainBf16>;

typedef decltype(embed_blocks<FormatQ8_0>) embed_blocks_kernel;
template [[host_name("embed_q8_0")]] kernel embed_blocks_kernel embed_blocks<FormatQ8_0>;
template [[host_name("embed_q4_0")]] kernel embed_blocks_kernel embed_blocks<FormatQ4_0>;
template [[host_name("embed_q4_1")]] kernel embed_blocks_kernel embed_blocks<FormatQ4_1>;
template [[host_name("embed_q5_0")]] kernel embed_blocks_kernel embed_blocks<FormatQ5_0>;
template [[host_name("embed_q5_1")]] kernel embed_blocks_kernel embed_blocks<FormatQ5_1>;
template [[host_name("embed_q2_k")]] kernel embed_blocks_kernel embed_blocks<FormatQ2_K>;
template [[host_name("embed_q3_k")]] kernel embed_blocks_kernel embed_blocks<FormatQ3_K>;
template [[host_name("embed_q4_k")]] kernel embed_blocks_kernel embed_blocks<FormatQ4_K>;
template [[host_name("embed_q5_k")]] kernel embed_blocks_kernel embed_blocks<FormatQ5_K>;
template [[host_name("embed_q6_k")]] kernel embed_blocks_kernel embed_blocks<FormatQ6_K>;
template [[host_name("embed_iq4_nl")]] kernel embed_blocks_kernel embed_blocks<FormatIQ4_NL>;
template [[host_name("embed_mxfp4")]] kernel embed_blocks_kernel embed_blocks<FormatMXFP4>;
template [[host_name("embed_iq4_xs")]] kernel embed_blocks_kernel embed_blocks<FormatIQ4_XS>;

// Norms. Grid: a threadgroup per row. A thread reads and writes the same elements in all passes: out may be x.
kernel void rms_norm(constant RmsNormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                     device const float* weight [[buffer(2)]], device float* out [[buffer(3)]],
                     uint3 position [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint3 threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float shared[32];
  device const float* from = x + ulong(position.x) * args.stride;
  device float* to = out + ulong(position.x) * args.stride;
  float sum = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) sum += from[col] * from[col];
  float total = threadgroup_sum(sum, shared, lane, simdgroup, simdgroups);
  float factor = precise::rsqrt(total / float(args.cols) + args.eps);
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = from[col] * factor;
    to[col] = args.has_weight != 0 ? value * weight[col] : value;
  }
}

kernel void layer_norm(constant LayerNormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                       device const float* weight [[buffer(2)]], device const float* bias [[buffer(3)]],
                       device float* out [[buffer(4)]],
                       uint3 position [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]],
                       uint3 threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float shared[32];
  device const float* from = x + ulong(position.x) * args.cols;
  device float* to = out + ulong(position.x) * args.cols;
  float sum = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) sum += from[col];
  float mean = threadgroup_sum(sum, shared, lane, simdgroup, simdgroups) / float(args.cols);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // all have read the sum
  float squares = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    squares += (from[col] - mean) * (from[col] - mean);
  }
  float total = threadgroup_sum(squares, shared, lane, simdgroup, simdgroups);
  float factor = precise::rsqrt(total / float(args.cols) + args.eps);
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = (from[col] - mean) * factor * weight[col];
    to[col] = args.has_bias != 0 ? value + bias[col] : value;
  }
}

kernel void gated_norm(constant GatedNormArgs& args [[buffer(0)]], device float* x [[buffer(1)]],
                       device const float* z [[buffer(2)]], device const float* weight [[buffer(3)]],
                       uint3 position [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]],
                       uint3 threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float shared[32];
  ulong begin = ulong(position.x) * args.cols;
  device const float* own_weight = weight + begin % args.weight_cols;
  float sum = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = x[begin + col];
    if (args.gates_first != 0) {
      value *= activation_of(kSilu, z[begin + col]);
      x[begin + col] = value;
    }
    sum += value * value;
  }
  float total = threadgroup_sum(sum, shared, lane, simdgroup, simdgroups);
  float factor = precise::rsqrt(total / float(args.cols) + args.eps);
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = x[begin + col] * factor * own_weight[col];
    x[begin + col] = args.gates_first != 0 ? value : value * activation_of(kSilu, z[begin + col]);
  }
}

// Grid: x = elements. out may be a, or b where it has as many.
kernel void add(constant AddArgs& args [[buffer(0)]], device const float* a [[buffer(1)]],
                device const float* b [[buffer(2)]], device float* out [[buffer(3)]],
                uint3 position [[thread_position_in_grid]]) {
  uint i = position.x;
  if (i < args.count) out[i] = a[i] + b[i % args.b_count];
}

// Grid: x = elements. out may be x, or factor where its rows follow each other.
kernel void activate(constant ActivateArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                     device const float* factor [[buffer(2)]], device float* out [[buffer(3)]],
                     uint3 position [[thread_position_in_grid]]) {
  uint i = position.x;
  if (i >= args.count) return;
  float value = activation_of(args.activation, x[i]);
  if (args.has_factor != 0) {
    float by = factor[ulong(i / args.cols) * args.factor_stride + i % args.cols];
    value *= args.activation == kClampedSilu ? min(max(by, -7.0f), 7.0f) + 1.0f : by;
  }
  out[i] = value;
}

// Grid: x = elements. out may be x or residual.
kernel void finish(constant FinishArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
                   device const float* residual [[buffer(2)]], device float* out [[buffer(3)]],
                   uint3 position [[thread_position_in_grid]]) {
  uint i = position.x;
  if (i >= args.count) return;
  float value = x[i] * args.scale;
  if (args.has_residual != 0) value += residual[i];
  value *= args.out_scale;
  out[i] = args.softcap != 0.0f ? args.softcap * precise::tanh(value / args.softcap) : value;
}
