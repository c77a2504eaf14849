// What the two forms of CPU attention share: blocks of queries, and spans of the cache by the tables' kernels.
//
// Work items are (block of queries, kv head): the whole GQA group of a block shares each load of K and V. A result is
// put together from those of spans, which begin at fixed absolute positions, in ascending order: its bits depend on
// nothing but the query and what it sees.
#pragma once

#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_ops.h"
#include "base/checked.h"

namespace inferno::cpu {

inline constexpr int64_t kMaxQueryBlock = 256;  // the largest query_block of any kernel
static_assert(kMaxQueryGroup <= kMaxQueryBlock);
inline constexpr int64_t kMaxPagesPerSpan = kAttentionSpan;
// Blocks are made smaller while there are fewer (block, kv head) items per worker than this, but not smaller than
// kMinQueries: packing keys and values into the kernel's layout is paid once per block.
inline constexpr int64_t kItemsPerWorker = 4;
inline constexpr int64_t kMinQueries = 32;

// Up to `query_block` queries of one sequence that share a kv head, token by token, the group's heads side by side.
struct QueryBlock {
  int32_t sequence = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
};

struct AttentionPlan {
  const AttentionKernel* kernel = nullptr;
  int64_t group = 0;             // query heads per kv head
  int64_t tokens_per_block = 0;  // tokens whose group fits the kernel's query block
  int64_t next_head = 0;         // a worker's next item should be so many kv heads on; 0: unknown
};

inline AttentionPlan plan_of(const AttentionArgs& a, const KernelTable& kernels, int workers) {
  AttentionPlan plan;
  plan.kernel = &kernels.attention[static_cast<int>(a.kv.dtype)];
  plan.group = a.q.cols() / a.kv.head_dim / a.kv.kv_heads;
  plan.tokens_per_block = std::max<int64_t>(1, std::min(plan.kernel->query_block, kMaxQueryBlock) / plan.group);
  const auto items = [&] { return ceil_div(a.batch.tokens, plan.tokens_per_block) * a.kv.kv_heads; };
  while (items() < kItemsPerWorker * workers && plan.tokens_per_block * plan.group >= 2 * kMinQueries) {
    plan.tokens_per_block /= 2;
  }
  plan.next_head = workers;
  return plan;
}

// Calls f(block) for every block of some tokens of the step, the last one of each sequence first: it sees the most
// positions, and workers that claim blocks dynamically should end with short ones.
template <typename F>
void for_each_block(const AttentionArgs& a, const AttentionPlan& plan, Range tokens, F f) {
  for (int32_t s = 0; s < a.batch.sequences; ++s) {
    const int64_t begin = std::max<int64_t>(a.batch.q_begin[s], tokens.begin);
    const int64_t end = std::min<int64_t>(a.batch.q_begin[s + 1], tokens.end);
    for (int64_t block = ceil_div(end - begin, plan.tokens_per_block) - 1; block >= 0; --block) {
      const int64_t first = begin + block * plan.tokens_per_block;
      f(QueryBlock{s, first, std::min(plan.tokens_per_block, end - first)});
    }
  }
}

template <typename F>
void for_each_block(const AttentionArgs& a, const AttentionPlan& plan, F f) {
  for_each_block(a, plan, {0, a.batch.tokens}, f);
}

// Memory of one span's result, or of a running result: m and l per query, then o.
struct Partial {
  float* m;
  float* l;
  float* o;
};
inline int64_t partial_floats(int64_t queries, int64_t head_dim) {
  return queries * (2 + head_dim);
}
inline Partial partial_at(float* memory, int64_t queries) {
  return {memory, memory + queries, memory + 2 * queries};
}

// One span of one kv head.
struct SpanPlace {
  int64_t kv_head = 0;
  int64_t span = 0;
};
// The same and what a worker knows of its other work.
struct SpanTurn {
  SpanPlace at;
  std::optional<SpanPlace> next = {};  // to be prefetched meanwhile
  int32_t next_sequence = 0;           // whose span that is
  bool prefetched = false;             // was the next before
};

struct SpanPages {
  const void* k[kMaxPagesPerSpan];
  const void* v[kMaxPagesPerSpan];
  int64_t positions = 0;
};
inline void find_pages(const AttentionArgs& a, int32_t sequence, const SpanPlace& place, SpanPages& found) {
  const int32_t* table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  const int64_t first = place.span * kAttentionSpan;
  found.positions = std::min(a.batch.kv_len[sequence] - first, kAttentionSpan);
  const int64_t pages = ceil_div(found.positions, a.kv.page_size);
  for (int64_t p = 0; p < pages; ++p) {
    const int64_t slot = int64_t{table[first / a.kv.page_size + p]} * a.kv.page_size;
    const int64_t offset = a.kv.row_offset(slot, place.kv_head);
    found.k[p] = static_cast<const char*>(a.kv.k) + offset;
    found.v[p] = static_cast<const char*>(a.kv.v) + offset;
  }
}

// One span by the kernel, for queries that see its first visible[i] positions.
inline void run_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, const SpanTurn& turn,
                     const int32_t* visible, const Partial& out, void* scratch) noexcept {
  const int64_t d = a.kv.head_dim;
  SpanPages pages;
  find_pages(a, block.sequence, turn.at, pages);
  SpanPages next;
  if (turn.next) find_pages(a, turn.next_sequence, *turn.next, next);
  SpanTask task{};
  task.q = a.q.f32() + block.first_token * a.q.cols() + turn.at.kv_head * plan.group * d;
  task.token_stride = a.q.cols();
  task.group = plan.group;
  task.queries = block.tokens * plan.group;
  task.head_dim = d;
  task.visible = visible;
  task.k_pages = pages.k;
  task.v_pages = pages.v;
  task.page_size = a.kv.page_size;
  task.row_bytes = a.kv.row_bytes();
  task.scale = a.scale;
  task.next_k_pages = next.k;
  task.next_v_pages = next.v;
  task.next_positions = next.positions;
  task.prefetched = turn.prefetched;
  task.m = out.m;
  task.l = out.l;
  task.o = out.o;
  task.scratch = scratch;
  plan.kernel->run(task);
}

inline void merge(const Partial& total, const Partial& span, int64_t queries, int64_t d,
                  const KernelTable& kernels) noexcept {
  for (int64_t i = 0; i < queries; ++i) {
    kernels.merge_span(total.m + i, total.l + i, total.o + i * d, span.m[i], span.l[i], span.o + i * d, d);
  }
}

// A worker's memory: results of a block of queries and of one span of it, then the kernel's scratch.
struct BlockMemory {
  Partial total;
  Partial span;
  std::byte* scratch = nullptr;
};
inline BlockMemory block_memory(std::byte* local, int64_t queries, int64_t head_dim) {
  auto* memory = reinterpret_cast<float*>(local);
  const int64_t floats = partial_floats(queries, head_dim);
  return {partial_at(memory, queries), partial_at(memory + floats, queries),
          local + round_up(2 * floats * static_cast<int64_t>(sizeof(float)), 64)};
}

// One item of plain attention; local: OpScratch::local bytes.
void attend_block(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
                  std::byte* local, const KernelTable& kernels) noexcept;

// ---- attention that is not plain (op_extras.h): a function of its own, so that the plain one stays as simple as it is

// Its scratch memory beyond two results of a block.
[[nodiscard]] int64_t general_scratch_bytes(const AttentionArgs& a, const AttentionPlan& plan);
// The spans that the block's queries see some of.
[[nodiscard]] Range general_spans(const AttentionArgs& a, const QueryBlock& block);
void run_general_span(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, const SpanTurn& turn,
                      const Partial& out, void* scratch, const KernelTable& kernels) noexcept;
// The results, from those of all spans; overwrites total.o.
void finish_general(const AttentionArgs& a, const AttentionPlan& plan, const QueryBlock& block, int64_t kv_head,
                    const Partial& total, const KernelTable& kernels) noexcept;

}  // namespace inferno::cpu
