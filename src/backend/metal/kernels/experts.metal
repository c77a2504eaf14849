// Experts: which ones a token has, its pairs of token and expert by expert, and the sum over a token's experts.
#include "activations.h"

constant uint kPairColumns = 8;  // kFewTokens of products.h

// The enum RouterScore, whose values these are.
enum ScoreKind { kScoreSoftmax, kScoreSigmoid, kScoreSoftmaxChosen, kScoreSqrtSoftplus };

// exp(x - max) / sum of n values, in place, by one simdgroup.
inline void softmax(threadgroup float* x, uint n, uint lane) {
  float top = -INFINITY;
  for (uint i = lane; i < n; i += 32) top = max(top, x[i]);
  top = simd_max(top);
  float sum = 0.0f;
  for (uint i = lane; i < n; i += 32) {
    x[i] = precise::exp(x[i] - top);
    sum += x[i];
  }
  sum = simd_sum(sum);
  for (uint i = lane; i < n; i += 32) x[i] /= sum;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The sum of the best two, or the best where there is only one.
inline float best_two(threadgroup const float* choice, uint count) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (uint i = 0; i < count; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
      second = choice[i];
    }
  }
  return count > 1 ? first + second : first;
}

// Experts outside the best groups become NaN, as those that are taken: nobody can choose them. Of equal groups the
// first are better. worth[groups]
inline void keep_best_groups(constant RouteArgs& args, threadgroup float* choice, threadgroup float* worth, uint lane) {
  uint size = args.experts / args.groups;
  for (uint g = lane; g < args.groups; g += 32) worth[g] = best_two(choice + g * size, size);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint g = lane; g < args.groups; g += 32) {
    uint better = 0;
    for (uint other = 0; other < args.groups; ++other) {
      if (worth[other] > worth[g] || (worth[other] == worth[g] && other < g)) ++better;
    }
    if (better < args.groups_used) continue;
    for (uint i = 0; i < size; ++i) choice[g * size + i] = NAN;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The first of the best that are not taken; there is one.
inline uint best_left(threadgroup const float* choice, uint experts, uint lane) {
  float value = -INFINITY;
  uint best = experts;  // none
  for (uint i = lane; i < experts; i += 32) {
    if (!isnan(choice[i]) && (best == experts || choice[i] > value)) {
      value = choice[i];
      best = i;
    }
  }
  float top = simd_max(value);
  return min(simd_min(value == top ? best : experts), experts - 1);
}

// The choice as backend/routing.cpp defines it, best first, among up to 1024 experts. Grid: a threadgroup of one
// simdgroup per token. ids, weights [tokens, used]
kernel void route(constant RouteArgs& args [[buffer(0)]], device const float* logits [[buffer(1)]],
                  device const float* selection_bias [[buffer(2)]], device const float* expert_scale [[buffer(3)]],
                  device int* ids [[buffer(4)]], device float* weights [[buffer(5)]],
                  uint3 position [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float scores[1024];
  threadgroup float choice[1024];
  threadgroup float chosen[1024];  // scores, best first
  threadgroup uint best_ids[1024];
  threadgroup float worth[64];
  uint token = position.x;
  for (uint i = lane; i < args.experts; i += 32) {
    float score = logits[ulong(token) * args.experts + i] * args.logit_scale;
    if (args.score == kScoreSigmoid) score = sigmoid(score);
    if (args.score == kScoreSqrtSoftplus) score = precise::sqrt(softplus(score));
    scores[i] = score;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (args.score == kScoreSoftmax) softmax(scores, args.experts, lane);
  for (uint i = lane; i < args.experts; i += 32) {
    float value = scores[i] + (args.has_selection_bias != 0 ? selection_bias[i] : 0.0f);
    choice[i] = isnan(value) ? -INFINITY : value;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (args.groups > 1) keep_best_groups(args, choice, worth, lane);
  float sum = 0.0f;
  for (uint j = 0; j < args.used; ++j) {
    uint best = best_left(choice, args.experts, lane);
    sum += scores[best];
    simdgroup_barrier(mem_flags::mem_threadgroup);  // all lanes have read the choice that lane 0 takes away
    if (lane == 0) {
      choice[best] = NAN;
      chosen[j] = scores[best];
      best_ids[j] = best;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (args.score == kScoreSoftmaxChosen) {
    softmax(chosen, args.used, lane);
    sum = 1.0f;
  }
  float factor = args.normalize != 0 ? args.scale / sum : args.scale;
  for (uint j = lane; j < args.used; j += 32) {
    float weight = chosen[j] * factor;
    if (args.has_expert_scale != 0) weight *= expert_scale[best_ids[j]];
    ids[ulong(token) * args.used + j] = int(best_ids[j]);
    weights[ulong(token) * args.used + j] = weight;
  }
}

// Pairs by expert, in their order, cut into tiles of kPairColumns: of tile i, tiles has the expert, where its pairs
// begin in `pairs` and how many they are. Grid: one threadgroup with a thread per expert.
kernel void sort_pairs(constant SortPairsArgs& args [[buffer(0)]], device const int* ids [[buffer(1)]],
                       device int* tile_count [[buffer(2)]], device int* tiles [[buffer(3)]],
                       device int* pairs [[buffer(4)]],
                       uint expert [[thread_index_in_threadgroup]]) {
  threadgroup uint counts[1024];
  uint count = 0;
  for (uint p = 0; p < args.pairs; ++p) {
    if (uint(ids[p]) == expert) ++count;
  }
  counts[expert] = count;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (expert >= args.experts) return;
  uint first_pair = 0;
  uint tile = 0;
  for (uint e = 0; e < expert; ++e) {
    first_pair += counts[e];
    tile += (counts[e] + kPairColumns - 1) / kPairColumns;
  }
  for (uint done = 0; done < count; done += kPairColumns) {
    tiles[tile * 3] = int(expert);
    tiles[tile * 3 + 1] = int(first_pair + done);
    tiles[tile * 3 + 2] = int(min(kPairColumns, count - done));
    ++tile;
  }
  if (expert == args.experts - 1) tile_count[0] = int(tile);
  uint next = first_pair;
  for (uint p = 0; p < args.pairs; ++p) {
    if (uint(ids[p]) == expert) pairs[next++] = int(p);
  }
}

// Grid: a threadgroup per token. parts [tokens, used, cols]: the first of a token's rows becomes its sum. A thread
// reads and writes its own elements alone; out may be the residual or h.
kernel void expert_sum(constant ExpertSumArgs& args [[buffer(0)]], device float* parts [[buffer(1)]],
                       device const float* weights [[buffer(2)]], device const float* h [[buffer(3)]],
                       device const float* experts_norm [[buffer(4)]], device const float* all_shared [[buffer(5)]],
                       device const float* shared_gate [[buffer(6)]], device const float* post_norm [[buffer(7)]],
                       device const float* residual [[buffer(8)]], device float* out [[buffer(9)]],
                       uint3 position [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]],
                       uint3 threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float shared[3 * 32];  // of each sum, so that none waits for another
  ulong token = position.x;
  ulong begin = token * args.cols;
  device float* y = parts + token * args.used * args.cols;
  float squares = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float sum = 0.0f;
    for (uint j = 0; j < args.used; ++j) sum += weights[token * args.used + j] * y[ulong(j) * args.cols + col];
    y[col] = sum;
    squares += sum * sum;
  }
  float factor = 1.0f;
  if (args.has_experts_norm != 0) {
    float total = threadgroup_sum(squares, shared, lane, simdgroup, simdgroups);
    factor = precise::rsqrt(total / float(args.cols) + args.eps);
  }
  float share = 1.0f;
  if (args.has_shared_gate != 0) {
    float dot = 0.0f;
    for (uint col = thread_index; col < args.cols; col += threads.x) dot += h[begin + col] * shared_gate[col];
    share = sigmoid(threadgroup_sum(dot, shared + 32, lane, simdgroup, simdgroups));
  }
  squares = 0.0f;
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = y[col];
    if (args.has_experts_norm != 0) value = value * factor * experts_norm[col];
    if (args.has_shared != 0) value += share * all_shared[begin + col];
    y[col] = value;
    squares += value * value;
  }
  factor = 1.0f;
  if (args.has_post_norm != 0) {
    float total = threadgroup_sum(squares, shared + 64, lane, simdgroup, simdgroups);
    factor = precise::rsqrt(total / float(args.cols) + args.eps);
  }
  for (uint col = thread_index; col < args.cols; col += threads.x) {
    float value = y[col];
    if (args.has_post_norm != 0) value = value * factor * post_norm[col];
    value *= args.residual_scale;
    if (args.has_residual != 0) value += residual[begin + col];
    out[begin + col] = value * args.out_scale;
  }
}
