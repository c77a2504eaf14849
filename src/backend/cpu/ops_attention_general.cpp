// Attention with a window, a soft cap, sinks, a gate, without causality, or with values unlike keys.
//
// The tables' kernels see the first positions of a span, so they serve the queries whose window does not begin inside
// it; where it does, or scores are capped, plain loops over rows of the cache do. Which of the two is a matter of the
// query and the span alone. Spans before a block's windows are skipped.
#include <cmath>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/products.h"

namespace inferno::cpu {
namespace {

// The cached positions that a query at `position` sees.
Range visible_range(const AttentionArgs& a, int64_t position, int64_t length) {
  const int64_t half = a.window / 2;
  const int64_t last = a.causal ? position : a.window == 0 ? length - 1 : position + half;
  const int64_t first = a.window == 0 ? 0 : a.causal ? position - a.window + 1 : position - half;
  return {std::max<int64_t>(first, 0), std::min(last + 1, length)};
}
Range visible_range(const AttentionArgs& a, const QueryBlock& block, int64_t token) {
  return visible_range(a, a.batch.pos[block.first_token + token], a.batch.kv_len[block.sequence]);
}

bool kernels_fit(const AttentionArgs& a) {
  return a.softcap == 0 && a.kv.value_dim() == a.kv.head_dim;
}

void fill_unseen(const Partial& out, Range queries, int64_t d) noexcept {
  std::fill_n(out.m + queries.begin, queries.size(), -INFINITY);
  std::fill_n(out.l + queries.begin, queries.size(), 0.0F);
  std::fill_n(out.o + queries.begin * d, queries.size() * d, 0.0F);
}

// A row of the cache as floats: in place, or converted into `buffer`.
const float* cache_row(const AttentionArgs& a, const KvLayerView& rows, int32_t sequence, int64_t position,
                       int64_t kv_head, float* buffer, const KernelTable& kernels) noexcept {
  const int32_t* table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  const int64_t slot = int64_t{table[position / rows.page_size]} * rows.page_size + position % rows.page_size;
  const void* row = static_cast<const char*>(rows.k) + rows.row_offset(slot, kv_head);
  if (rows.dtype == DType::f32) return static_cast<const float*>(row);
  kernels.load_row[static_cast<int>(rows.dtype)](row, buffer, rows.head_dim);
  return buffer;
}

// The heads of one token over positions of one span, row by row.
void run_rows(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t token,
              int64_t kv_head, Range positions, const Partial& out, void* scratch,
              const KernelTable& kernels) noexcept {
  const int64_t d = a.kv.head_dim;
  const int64_t value_dim = a.kv.value_dim();
  auto* scores = static_cast<float*>(scratch);  // [group, kAttentionSpan]
  float* buffer = scores + plan.group * kAttentionSpan;
  const float* q = a.q.f32() + (block.first_token + token) * a.q.cols() + kv_head * plan.group * d;
  for (int64_t p = positions.begin; p < positions.end; ++p) {
    const float* key = cache_row(a, a.kv, block.sequence, p, kv_head, buffer, kernels);
    for (int64_t g = 0; g < plan.group; ++g) {
      scores[g * kAttentionSpan + p - positions.begin] = kernels.dot(q + g * d, key, d) * a.scale;
    }
  }
  const Range queries = {token * plan.group, (token + 1) * plan.group};
  fill_unseen(out, queries, value_dim);
  for (int64_t g = 0; g < plan.group; ++g) {
    float* s = scores + g * kAttentionSpan;
    if (a.softcap != 0) kernels.soft_cap(s, a.softcap, s, positions.size());
    const float m = *std::max_element(s, s + positions.size());
    float sum = 0;
    for (int64_t i = 0; i < positions.size(); ++i) {
      s[i] = std::exp(s[i] - m);
      sum += s[i];
    }
    out.m[queries.begin + g] = m;
    out.l[queries.begin + g] = sum;
  }
  const KvLayerView values = a.kv.values();
  for (int64_t p = positions.begin; p < positions.end; ++p) {
    const float* value = cache_row(a, values, block.sequence, p, kv_head, buffer, kernels);
    for (int64_t g = 0; g < plan.group; ++g) {
      kernels.saxpy(scores[g * kAttentionSpan + p - positions.begin], value, out.o + (queries.begin + g) * value_dim,
                    value_dim);
    }
  }
}

}  // namespace

int64_t general_scratch_bytes(const AttentionArgs& a, const AttentionPlan& plan) {
  const int64_t rows = plan.group * kAttentionSpan + std::max(a.kv.head_dim, a.kv.value_dim());
  return std::max(plan.kernel->scratch_bytes(plan.tokens_per_block * plan.group, a.kv.head_dim),
                  rows * static_cast<int64_t>(sizeof(float)));
}

Range general_spans(const AttentionArgs& a, const QueryBlock& block) {
  return {visible_range(a, block, 0).begin / kAttentionSpan,
          ceil_div(visible_range(a, block, block.tokens - 1).end, kAttentionSpan)};
}

// Positions ascend within a block, and so do the ends of windows: the queries that see the span
// from its first position come first, and those that do not see it at all last.
void run_general_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, const SpanTurn& turn,
                      const Partial& out, void* scratch, const KernelTable& kernels) noexcept {
  const Range all = {turn.at.span * kAttentionSpan, (turn.at.span + 1) * kAttentionSpan};
  int32_t visible[kMaxQueryBlock];
  int64_t token = 0;
  for (; token < block.tokens && kernels_fit(a); ++token) {
    const Range range = visible_range(a, block, token);
    if (range.begin > all.begin) break;
    const auto count = static_cast<int32_t>(std::clamp<int64_t>(range.end - all.begin, 0, kAttentionSpan));
    std::fill_n(visible + token * plan.group, plan.group, count);
  }
  if (token > 0) {
    QueryBlock first = block;
    first.tokens = token;
    run_span(a, plan, first, turn, visible, out, scratch);
  }
  for (; token < block.tokens; ++token) {
    const Range range = visible_range(a, block, token);
    const Range positions = {std::max(range.begin, all.begin), std::min(range.end, all.end)};
    if (positions.begin < positions.end) {
      run_rows(a, plan, block, token, turn.at.kv_head, positions, out, scratch, kernels);
    } else {
      fill_unseen(out, {token * plan.group, (token + 1) * plan.group}, a.kv.value_dim());
    }
  }
}

// Divides by the sum, to which a sink adds its part, and applies the gate.
void finish_general(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
                    const Partial& total, const KernelTable& kernels) noexcept {
  const int64_t d = a.kv.value_dim();
  const int64_t q_heads = a.q.cols() / a.kv.head_dim;
  const auto gated = kernels.gated[static_cast<int>(a.gate_activation)];
  for (int64_t i = 0; i < block.tokens * plan.group; ++i) {
    const int64_t token = block.first_token + i / plan.group;
    const int64_t head = kv_head * plan.group + i % plan.group;
    float* o = total.o + i * d;
    float* out = a.out.f32() + token * a.out.cols() + head * d;
    float factor = 1.0F / total.l[i];
    if (a.sinks != nullptr) {
      const float sink = cpu(a.sinks).vector()[head];
      const float top = std::max(total.m[i], sink);
      const float keep = std::exp(total.m[i] - top);
      factor = keep / (total.l[i] * keep + std::exp(sink - top));
    }
    kernels.scale(o, factor, out, d);
    if (a.gate.empty()) continue;
    const float* gate = a.gate.f32() + token * a.gate.cols();
    if (a.gate.cols() == q_heads && d > 1) {
      std::fill_n(o, d, gate[head]);
      gated(o, out, out, d);
    } else {
      gated(gate + head * d, out, out, d);
    }
  }
}

}  // namespace inferno::cpu
