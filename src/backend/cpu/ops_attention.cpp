// Attention and the cache primitives on the CPU.
//
// When there are too few items (attention_blocks.h) for the threads (decode at depth), the spans of an item are divided
// among the workers too: each stores the partial results of its spans, and after a barrier they are merged in ascending
// span order. Both ways give the same bits.
#include <algorithm>
#include <cmath>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/op_extras.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

void run_causal_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
                     int64_t span, const Partial& out, void* scratch) noexcept {
  int32_t visible[kMaxQueryBlock];
  for (int64_t i = 0; i < block.tokens * plan.group; ++i) {
    const int64_t position = a.batch.pos[block.first_token + i / plan.group];
    visible[i] = static_cast<int32_t>(std::clamp<int64_t>(position + 1 - span * kAttentionSpan, 0, kAttentionSpan));
  }
  run_span(a, plan, block, kv_head, span, visible, out, scratch);
}

// Spans a block's last query reaches into.
int64_t span_count(const AttentionArgs& a, const QueryBlock& block) {
  const int64_t last = a.batch.pos[block.first_token + block.tokens - 1];
  return last / kAttentionSpan + 1;
}

// Every query sees some of the first span: the other spans are merged into its result.
void copy(const Partial& span, int64_t queries, int64_t d, const Partial& total) noexcept {
  std::copy_n(span.m, queries, total.m);
  std::copy_n(span.l, queries, total.l);
  std::copy_n(span.o, queries * d, total.o);
}
void finish(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
            const Partial& total, const KernelTable& kernels) noexcept {
  const int64_t d = a.kv.head_dim;
  for (int64_t i = 0; i < block.tokens * plan.group; ++i) {
    const int64_t token = block.first_token + i / plan.group;
    const int64_t head = kv_head * plan.group + i % plan.group;
    kernels.scale(total.o + i * d, 1.0F / total.l[i], a.out.f32() + token * a.out.cols() + head * d, d);
  }
}

// Partial results of a one-token block when its spans are split: one per span.
int64_t max_spans(const AttentionArgs& a) {
  return ceil_div(int64_t{a.batch.max_pages} * a.kv.page_size, kAttentionSpan);
}

// All spans of one item, one after the other.
void attend(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
            const BlockMemory& memory, const KernelTable& kernels) noexcept {
  run_causal_span(a, plan, block, kv_head, 0, memory.total, memory.scratch);
  for (int64_t span = 1; span < span_count(a, block); ++span) {
    run_causal_span(a, plan, block, kv_head, span, memory.span, memory.scratch);
    merge(memory.total, memory.span, block.tokens * plan.group, a.kv.head_dim, kernels);
  }
  finish(a, plan, block, kv_head, memory.total, kernels);
}

}  // namespace

// There are so few items that threads would idle (decoding steps of a few sequences), and there are spans to split.
bool splits_spans(const AttentionArgs& a, int threads) {
  if (!is_plain(a)) return false;
  const bool few = a.batch.tokens == a.batch.sequences && a.batch.tokens * a.kv.kv_heads < 2 * threads;
  return threads > 1 && few && std::any_of(a.batch.kv_len, a.batch.kv_len + a.batch.sequences, [](int32_t positions) {
           return positions > kAttentionSpan;
         });
}

OpScratch scratch_of(const AttentionArgs& a, const KernelTable& kernels, int threads) {
  const AttentionPlan plan = plan_of(a, kernels, 0);  // the largest blocks there may be
  const int64_t queries = plan.tokens_per_block * plan.group;
  const int64_t floats = partial_floats(queries, a.kv.value_dim());
  if (!is_plain(a)) {
    return {.local = round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64) + general_scratch_bytes(a, plan)};
  }
  // Split spans: at most 2 * threads items of one token each, a partial result per span.
  const int64_t shared = 2 * threads * max_spans(a) * partial_floats(plan.group, a.kv.head_dim);
  return {.shared = threads > 1 ? shared * static_cast<int64_t>(sizeof(float)) : 0,
          .local = round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64) +
                   plan.kernel->scratch_bytes(queries, a.kv.head_dim)};
}

void attend_head(const AttentionArgs& a, int64_t kv_head, std::byte* local, const KernelTable& kernels) noexcept {
  const AttentionPlan plan = plan_of(a, kernels, 0);
  const BlockMemory memory = block_memory(local, plan.group, a.kv.value_dim());
  const QueryBlock block{.tokens = 1};
  if (is_plain(a)) {
    attend(a, plan, block, kv_head, memory, kernels);
  } else {
    attend_general(a, plan, block, kv_head, memory, kernels);
  }
}

void run(const AttentionArgs& a, const Worker& w) noexcept {
  const AttentionPlan plan = plan_of(a, *w.kernels, w.nth);
  const int64_t d = a.kv.head_dim;
  const BlockMemory memory = block_memory(w.local, plan.tokens_per_block * plan.group, a.kv.value_dim());

  if (!splits_spans(a, w.nth)) {
    // Blocks see different numbers of positions, so items are claimed one by one rather than in slices.
    constexpr int kItems = 0;
    const bool plain = is_plain(a);
    int64_t item = 0;
    int64_t mine = w.next_item(kItems, -1);
    for_each_block(a, plan, [&](const QueryBlock& block) {
      for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, ++item) {
        if (item != mine) continue;
        if (plain) {
          attend(a, plan, block, kv_head, memory, *w.kernels);
        } else {
          attend_general(a, plan, block, kv_head, memory, *w.kernels);
        }
        mine = w.next_item(kItems, mine);
      }
    });
    return;
  }

  const int64_t stride = partial_floats(plan.group, d);
  auto* partials = reinterpret_cast<float*>(w.shared);
  int64_t piece = 0;
  int64_t at = 0;
  for_each_block(a, plan, [&](const QueryBlock& block) {
    for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, at += max_spans(a)) {
      for (int64_t span = 0; span < span_count(a, block); ++span, ++piece) {
        if (piece % w.nth != w.ith) continue;
        run_causal_span(a, plan, block, kv_head, span, partial_at(partials + (at + span) * stride, plan.group),
                        memory.scratch);
      }
    }
  });
  w.barrier();
  int64_t item = 0;
  for_each_block(a, plan, [&](const QueryBlock& block) {
    for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, ++item) {
      if (item % w.nth != w.ith) continue;
      const auto part = [&](int64_t span) {
        return partial_at(partials + (item * max_spans(a) + span) * stride, plan.group);
      };
      copy(part(0), plan.group, d, memory.total);
      for (int64_t span = 1; span < span_count(a, block); ++span)
        merge(memory.total, part(span), plan.group, d, *w.kernels);
      finish(a, plan, block, kv_head, memory.total, *w.kernels);
    }
  });
}

// ---- cache primitives

void run(const KvStoreArgs& a, const Worker& w) noexcept {
  const Range items = w.slice(a.k.rows() * a.kv.kv_heads);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t t = item / a.kv.kv_heads;
    const int64_t head = item % a.kv.kv_heads;
    store_kv_row(a.kv, a.batch.slot[t], head, a.k.f32() + t * a.k.cols() + head * a.kv.head_dim,
                 a.v.empty() ? nullptr : a.v.f32() + t * a.v.cols() + head * a.kv.value_dim(), *w.kernels);
  }
}

void run(const KvLoadArgs& a, const Worker& w) noexcept {
  const KvLayerView kv = a.values ? a.kv.values() : a.kv;
  const auto load = w.kernels->load_row[static_cast<int>(kv.dtype)];
  const int32_t* table = a.batch.block_table + int64_t{a.sequence} * a.batch.max_pages;
  const Range rows = w.slice(a.out.rows());
  for (int64_t p = rows.begin; p < rows.end; ++p) {
    const int64_t slot = int64_t{table[p / kv.page_size]} * kv.page_size + p % kv.page_size;
    load(static_cast<const char*>(kv.k) + kv.row_offset(slot, a.head), a.out.f32() + p * kv.head_dim, kv.head_dim);
  }
}

}  // namespace inferno::cpu
