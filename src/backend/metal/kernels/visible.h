// Which keys a query sees, and where the rows of the cache are.
#ifndef INFERNO_METAL_VISIBLE_H
#define INFERNO_METAL_VISIBLE_H
#include "cache.h"

inline bool is_visible(constant AttentionArgs& args, int position, int key) {
  if (args.causal != 0) return key <= position && (args.window == 0 || key > position - args.window);
  int distance = key > position ? key - position : position - key;
  return args.window == 0 || distance <= args.window / 2;
}

// The row of keys or of values of a position.
inline ulong row_of(constant AttentionArgs& args, device const int* block_table, int sequence, uint key, uint kv_head) {
  ulong page = ulong(block_table[ulong(sequence) * args.max_pages + key / args.cache.page_size]);
  return cache_row(args.cache, page * args.cache.page_size + key % args.cache.page_size, kv_head);
}
#endif
