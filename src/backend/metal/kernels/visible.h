// Which keys a query sees, and where the rows of the cache are.
#ifndef INFERNO_METAL_VISIBLE_H
#define INFERNO_METAL_VISIBLE_H
#include "cache.h"

// Set when a pipeline is made (device.h): what differs between the layers of models and is asked for every key.
constant bool kCausal [[function_constant(0)]];
constant bool kHasWindow [[function_constant(1)]];
constant bool kHasSoftcap [[function_constant(2)]];

inline bool is_visible(constant AttentionArgs& args, int position, int key) {
  if (kCausal) return key <= position && (!kHasWindow || key > position - args.window);
  int distance = key > position ? key - position : position - key;
  return !kHasWindow || distance <= args.window / 2;
}
inline float capped(constant AttentionArgs& args, float score) {
  return kHasSoftcap ? args.softcap * precise::tanh(score / args.softcap) : score;
}

// The row of keys or of values of a position.
inline ulong row_of(constant AttentionArgs& args, device const int* block_table, int sequence, uint key, uint kv_head) {
  ulong page = ulong(block_table[ulong(sequence) * args.max_pages + key / args.cache.page_size]);
  return cache_row(args.cache, page * args.cache.page_size + key % args.cache.page_size, kv_head);
}
#endif
