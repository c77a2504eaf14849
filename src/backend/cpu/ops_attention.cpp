// Attention and the cache primitives on the CPU.
//
// Work items are (block of queries, kv head): the whole GQA group of a block shares each load of K and V. When there
// are too few items for the threads (decode at depth), the spans of an item are divided among the workers too: each
// stores the partial results of its spans, and after a barrier they are merged in ascending span order. Both ways give
// the same bits.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

constexpr int64_t kMaxQueryBlock = 256;  // the largest query_block of any kernel
static_assert(kMaxQueryGroup <= kMaxQueryBlock);
constexpr int64_t kMaxPagesPerSpan = kAttentionSpan;
// Blocks are made smaller while there are fewer (block, kv head) items per worker than this, but not smaller than
// kMinQueries: packing keys and values into the kernel's layout is paid once per block.
constexpr int64_t kItemsPerWorker = 4;
constexpr int64_t kMinQueries = 32;

// Up to `query_block` queries of one sequence that share a kv head, token by token, the group's heads side by side.
struct Block {
  int32_t sequence = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
};

struct Plan {
  const AttentionKernel* kernel = nullptr;
  int64_t group = 0;             // query heads per kv head
  int64_t tokens_per_block = 0;  // tokens whose group fits the kernel's query block
};

Plan plan_of(const AttentionArgs& a, const KernelTable& kernels, int workers) {
  Plan plan;
  plan.kernel = &kernels.attention[static_cast<int>(a.kv.dtype)];
  plan.group = a.q.cols() / a.kv.head_dim / a.kv.kv_heads;
  plan.tokens_per_block = std::max<int64_t>(1, std::min(plan.kernel->query_block, kMaxQueryBlock) / plan.group);
  const auto items = [&] { return ceil_div(a.batch.tokens, plan.tokens_per_block) * a.kv.kv_heads; };
  while (items() < kItemsPerWorker * workers && plan.tokens_per_block * plan.group >= 2 * kMinQueries) {
    plan.tokens_per_block /= 2;
  }
  return plan;
}

// Calls f(block) for every block of the step, the last one of each sequence first: it sees the most positions, and
// workers that claim blocks dynamically should end with short ones.
template <typename F>
void for_each_block(const AttentionArgs& a, const Plan& plan, F f) {
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t begin = a.batch.q_begin[s];
    const int64_t end = a.batch.q_begin[s + 1];
    for (int64_t block = ceil_div(end - begin, plan.tokens_per_block) - 1; block >= 0; --block) {
      const int64_t first = begin + block * plan.tokens_per_block;
      f(Block{s, first, std::min(plan.tokens_per_block, end - first)});
    }
  }
}

// Memory of one span's result, or of a running result: m and l per query, then o.
struct Partial {
  float* m;
  float* l;
  float* o;
};
int64_t partial_floats(int64_t queries, int64_t head_dim) {
  return queries * (2 + head_dim);
}
Partial partial_at(float* memory, int64_t queries) {
  return {memory, memory + queries, memory + 2 * queries};
}

void run_span(const AttentionArgs& a, const Plan& plan, const Block& block, int64_t kv_head, int64_t span,
              const Partial& out, void* scratch) noexcept {
  const int64_t d = a.kv.head_dim;
  const int64_t queries = block.tokens * plan.group;
  int32_t visible[kMaxQueryBlock];
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t position = a.batch.pos[block.first_token + i / plan.group];
    visible[i] = static_cast<int32_t>(std::clamp<int64_t>(position + 1 - span * kAttentionSpan, 0, kAttentionSpan));
  }
  const void* k_pages[kMaxPagesPerSpan];
  const void* v_pages[kMaxPagesPerSpan];
  const int32_t* table = a.batch.block_table + int64_t{block.sequence} * a.batch.max_pages;
  const int64_t len = a.batch.kv_len[block.sequence];
  const int64_t first = span * kAttentionSpan;
  const int64_t pages = ceil_div(std::min(len - first, kAttentionSpan), a.kv.page_size);
  for (int64_t p = 0; p < pages; ++p) {
    const int64_t offset = a.kv.row_offset(int64_t{table[first / a.kv.page_size + p]} * a.kv.page_size, kv_head);
    k_pages[p] = static_cast<const char*>(a.kv.k) + offset;
    v_pages[p] = static_cast<const char*>(a.kv.v) + offset;
  }
  SpanTask task{};
  task.q = a.q.f32() + block.first_token * a.q.cols() + kv_head * plan.group * d;
  task.token_stride = a.q.cols();
  task.group = plan.group;
  task.queries = queries;
  task.head_dim = d;
  task.visible = visible;
  task.k_pages = k_pages;
  task.v_pages = v_pages;
  task.page_size = a.kv.page_size;
  task.row_bytes = a.kv.row_bytes();
  task.scale = a.scale;
  task.m = out.m;
  task.l = out.l;
  task.o = out.o;
  task.scratch = scratch;
  plan.kernel->run(task);
}

// Spans a block's last query reaches into.
int64_t span_count(const AttentionArgs& a, const Block& block) {
  const int64_t last = a.batch.pos[block.first_token + block.tokens - 1];
  return last / kAttentionSpan + 1;
}

// Every query sees some of the first span: the other spans are merged into its result.
void copy(const Partial& span, int64_t queries, int64_t d, const Partial& total) noexcept {
  std::copy_n(span.m, queries, total.m);
  std::copy_n(span.l, queries, total.l);
  std::copy_n(span.o, queries * d, total.o);
}
void merge(const Partial& total, const Partial& span, int64_t queries, int64_t d, const KernelTable& kernels) noexcept {
  for (int64_t i = 0; i < queries; ++i) {
    kernels.merge_span(total.m + i, total.l + i, total.o + i * d, span.m[i], span.l[i], span.o + i * d, d);
  }
}

void finish(const AttentionArgs& a, const Plan& plan, const Block& block, int64_t kv_head, const Partial& total,
            const KernelTable& kernels) noexcept {
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

// A worker's memory: results of a block of queries and of one span of it, then the kernel's scratch.
struct BlockMemory {
  Partial total;
  Partial span;
  std::byte* scratch = nullptr;
};
BlockMemory block_memory(std::byte* local, int64_t queries, int64_t head_dim) {
  auto* memory = reinterpret_cast<float*>(local);
  const int64_t floats = partial_floats(queries, head_dim);
  return {partial_at(memory, queries), partial_at(memory + floats, queries),
          local + round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64)};
}

// All spans of one item, one after the other.
void attend(const AttentionArgs& a, const Plan& plan, const Block& block, int64_t kv_head, const BlockMemory& memory,
            const KernelTable& kernels) noexcept {
  run_span(a, plan, block, kv_head, 0, memory.total, memory.scratch);
  for (int64_t span = 1; span < span_count(a, block); ++span) {
    run_span(a, plan, block, kv_head, span, memory.span, memory.scratch);
    merge(memory.total, memory.span, block.tokens * plan.group, a.kv.head_dim, kernels);
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
  const Plan plan = plan_of(a, kernels, 0);  // the largest blocks there may be
  const int64_t queries = plan.tokens_per_block * plan.group;
  const int64_t floats = partial_floats(queries, a.kv.head_dim);
  // Split spans: at most 2 * threads items of one token each, a partial result per span.
  const int64_t shared = 2 * threads * max_spans(a) * partial_floats(plan.group, a.kv.head_dim);
  return {.shared = threads > 1 ? shared * static_cast<int64_t>(sizeof(float)) : 0,
          .local = round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64) +
                   plan.kernel->scratch_bytes(queries, a.kv.head_dim)};
}

void attend_head(const AttentionArgs& a, int64_t kv_head, std::byte* local, const KernelTable& kernels) noexcept {
  const Plan plan = plan_of(a, kernels, 0);
  attend(a, plan, Block{.tokens = 1}, kv_head, block_memory(local, plan.group, a.kv.head_dim), kernels);
}

void run(const AttentionArgs& a, const Worker& w) noexcept {
  const Plan plan = plan_of(a, *w.kernels, w.nth);
  const int64_t d = a.kv.head_dim;
  const BlockMemory memory = block_memory(w.local, plan.tokens_per_block * plan.group, d);

  if (!splits_spans(a, w.nth)) {
    // Blocks see different numbers of positions, so items are claimed one by one rather than in slices.
    constexpr int kItems = 0;
    int64_t item = 0;
    int64_t mine = w.next_item(kItems, -1);
    for_each_block(a, plan, [&](const Block& block) {
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
  for_each_block(a, plan, [&](const Block& block) {
    for (int64_t kv_head = 0; kv_head < a.kv.kv_heads; ++kv_head, at += max_spans(a)) {
      for (int64_t span = 0; span < span_count(a, block); ++span, ++piece) {
        if (piece % w.nth != w.ith) continue;
        run_span(a, plan, block, kv_head, span, partial_at(partials + (at + span) * stride, plan.group),
                 memory.scratch);
      }
    }
  });
  w.barrier();
  int64_t item = 0;
  for_each_block(a, plan, [&](const Block& block) {
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
  const int64_t d = a.kv.head_dim;
  const int64_t cols = a.k.cols();
  const Range items = w.slice(a.k.rows() * a.kv.kv_heads);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t t = item / a.kv.kv_heads;
    const int64_t head = item % a.kv.kv_heads;
    store_kv_row(a.kv, a.batch.slot[t], head, a.k.f32() + t * cols + head * d, a.v.f32() + t * cols + head * d,
                 *w.kernels);
  }
}

void run(const KvLoadArgs& a, const Worker& w) noexcept {
  const auto load = w.kernels->load_row[static_cast<int>(a.kv.dtype)];
  const int32_t* table = a.batch.block_table + int64_t{a.sequence} * a.batch.max_pages;
  const auto* base = static_cast<const char*>(a.values ? a.kv.v : a.kv.k);
  const Range rows = w.slice(a.out.rows());
  for (int64_t p = rows.begin; p < rows.end; ++p) {
    const int64_t slot = int64_t{table[p / a.kv.page_size]} * a.kv.page_size + p % a.kv.page_size;
    load(base + a.kv.row_offset(slot, a.head), a.out.f32() + p * a.kv.head_dim, a.kv.head_dim);
  }
}

}  // namespace inferno::cpu
