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

void run_causal_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, const SpanTurn& turn,
                     const Partial& out, void* scratch) noexcept {
  const int64_t first = turn.at.span * kAttentionSpan;
  int32_t visible[kMaxQueryBlock];
  for (int64_t i = 0; i < block.tokens * plan.group; ++i) {
    const int64_t position = a.batch.pos[block.first_token + i / plan.group];
    visible[i] = static_cast<int32_t>(std::clamp<int64_t>(position + 1 - first, 0, kAttentionSpan));
  }
  run_span(a, plan, block, turn, visible, out, scratch);
}

// The spans that the block's queries see some of.
Range spans_of(const AttentionArgs& a, const QueryBlock& block) {
  if (!is_plain(a)) return general_spans(a, block);
  return {0, a.batch.pos[block.first_token + block.tokens - 1] / kAttentionSpan + 1};
}

void run_one_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, const SpanTurn& turn,
                  const Partial& out, void* scratch, const KernelTable& kernels) noexcept {
  if (is_plain(a)) {
    run_causal_span(a, plan, block, turn, out, scratch);
  } else {
    run_general_span(a, plan, block, turn, out, scratch, kernels);
  }
}

// The results of further spans are merged into that of the first.
void copy(const Partial& span, int64_t queries, int64_t d, const Partial& total) noexcept {
  std::copy_n(span.m, queries, total.m);
  std::copy_n(span.l, queries, total.l);
  std::copy_n(span.o, queries * d, total.o);
}
void finish(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
            const Partial& total, const KernelTable& kernels) noexcept {
  if (!is_plain(a)) {
    finish_general(a, plan, block, kv_head, total, kernels);
    return;
  }
  const int64_t d = a.kv.head_dim;
  for (int64_t i = 0; i < block.tokens * plan.group; ++i) {
    const int64_t token = block.first_token + i / plan.group;
    const int64_t head = kv_head * plan.group + i % plan.group;
    kernels.scale(total.o + i * d, 1.0F / total.l[i], a.out.f32() + token * a.out.cols() + head * d, d);
  }
}

// Partial results of a one-token block when its spans are split: one per span that it sees some of.
int64_t max_spans(const AttentionArgs& a) {
  const int64_t all = ceil_div(int64_t{a.batch.max_pages} * a.kv.page_size, kAttentionSpan);
  // A window begins and ends inside spans.
  return a.window == 0 ? all : std::min(all, a.window / kAttentionSpan + 2);
}

bool is_one_token(const AttentionArgs& a, int32_t sequence) {
  return a.batch.q_begin[sequence + 1] - a.batch.q_begin[sequence] == 1;
}

// All spans of one item, one after the other.
void attend(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
            const BlockMemory& memory, const KernelTable& kernels) noexcept {
  const Range spans = spans_of(a, block);
  // A short span gives no time to prefetch another.
  const auto is_long = [&](int64_t span) {
    return span == spans.begin || a.batch.kv_len[block.sequence] - span * kAttentionSpan >= kAttentionSpan / 2;
  };
  // Decoding: a sequence's last heads are followed by the first ones of the next sequence.
  const bool follows = block.sequence > 0 && is_one_token(a, block.sequence - 1);
  const bool is_followed = block.sequence + 1 < a.batch.sequences && is_one_token(a, block.sequence);
  const auto turn = [&](int64_t span) {
    SpanTurn t = {.at = {kv_head, span}, .next_sequence = block.sequence};
    const bool heads = plan.next_head > 0;
    t.prefetched = span > spans.begin ? is_long(span) : heads && (kv_head >= plan.next_head || follows);
    if (span + 1 < spans.end && is_long(span + 1)) {
      t.next = SpanPlace{kv_head, span + 1};
    } else if (heads && is_long(span)) {
      const int64_t next_head = kv_head + plan.next_head;
      if (next_head < a.kv.kv_heads) {
        t.next = SpanPlace{next_head, spans.begin};
      } else if (is_followed && plan.next_head <= a.kv.kv_heads) {
        t.next = SpanPlace{next_head - a.kv.kv_heads, 0};
        t.next_sequence = block.sequence + 1;
      }
    }
    return t;
  };
  run_one_span(a, plan, block, turn(spans.begin), memory.total, memory.scratch, kernels);
  for (int64_t span = spans.begin + 1; span < spans.end; ++span) {
    run_one_span(a, plan, block, turn(span), memory.span, memory.scratch, kernels);
    merge(memory.total, memory.span, block.tokens * plan.group, a.kv.value_dim(), kernels);
  }
  finish(a, plan, block, kv_head, memory.total, kernels);
}

}  // namespace

// There are so few items that threads would idle (decoding steps of a few sequences), and there are spans to split.
bool splits_spans(const AttentionArgs& a, int threads) {
  const bool few = a.batch.tokens == a.batch.sequences && a.batch.tokens * a.kv.kv_heads < 2 * threads;
  return threads > 1 && few && std::any_of(a.batch.kv_len, a.batch.kv_len + a.batch.sequences, [](int32_t positions) {
           return positions > kAttentionSpan;
         });
}

OpScratch scratch_of(const AttentionArgs& a, const KernelTable& kernels, int threads) {
  const AttentionPlan plan = plan_of(a, kernels, 0);  // the largest blocks there may be
  const int64_t queries = plan.tokens_per_block * plan.group;
  const int64_t floats = partial_floats(queries, a.kv.value_dim());
  // Split spans: at most 2 * threads items of one token each, a partial result per span.
  const int64_t shared = 2 * threads * max_spans(a) * partial_floats(plan.group, a.kv.value_dim());
  return {.shared = threads > 1 ? shared * static_cast<int64_t>(sizeof(float)) : 0,
          .local = round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64) +
                   (is_plain(a) ? plan.kernel->scratch_bytes(queries, a.kv.head_dim) : general_scratch_bytes(a, plan))};
}

void attend_block(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
                  std::byte* local, const KernelTable& kernels) noexcept {
  const BlockMemory memory = block_memory(local, plan.tokens_per_block * plan.group, a.kv.value_dim());
  attend(a, plan, block, kv_head, memory, kernels);
}

void attend_head(const AttentionArgs& a, int64_t kv_head, std::byte* local, const KernelTable& kernels) noexcept {
  const AttentionPlan plan = plan_of(a, kernels, 0);
  const BlockMemory memory = block_memory(local, plan.group, a.kv.value_dim());
  attend(a, plan, {.tokens = 1}, kv_head, memory, kernels);
}

void run(const AttentionArgs& a, const Worker& w) noexcept {
  const AttentionPlan plan = plan_of(a, *w.kernels, w.nth);
  const int64_t d = a.kv.value_dim();
  const BlockMemory memory = block_memory(w.local, plan.tokens_per_block * plan.group, d);

  if (!splits_spans(a, w.nth)) {
    // Blocks see different numbers of positions, so items are claimed one by one rather than in slices.
    constexpr int kItems = 0;
    int64_t item = 0;
    int64_t mine = w.next_item(kItems, -1);
    for_each_block(a, plan, [&](const QueryBlock& block) {
      for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, ++item) {
        if (item != mine) continue;
        attend(a, plan, block, kv_head, memory, *w.kernels);
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
      const Range spans = spans_of(a, block);
      for (int64_t i = 0; i < spans.size(); ++i, ++piece) {
        if (piece % w.nth != w.ith) continue;
        run_one_span(a, plan, block, {.at = {kv_head, spans.begin + i}},
                     partial_at(partials + (at + i) * stride, plan.group), memory.scratch, *w.kernels);
      }
    }
  });
  w.barrier();
  int64_t item = 0;
  for_each_block(a, plan, [&](const QueryBlock& block) {
    for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, ++item) {
      if (item % w.nth != w.ith) continue;
      const auto part = [&](int64_t i) {
        return partial_at(partials + (item * max_spans(a) + i) * stride, plan.group);
      };
      copy(part(0), plan.group, d, memory.total);
      for (int64_t i = 1; i < spans_of(a, block).size(); ++i) {
        merge(memory.total, part(i), plan.group, d, *w.kernels);
      }
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
