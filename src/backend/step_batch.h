// What one step works on: the tokens of one or more sequences, described by int32 arrays at fixed backend addresses.
//
// The arrays are uploaded in one copy before the step, so a recorded plan or a captured graph never bakes in a token, a
// position or a length; the host side of an op knows only the counts T, S and R. A step may mix sequences: one in
// prefill with many tokens beside others that decode one token each.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace inferno {

// Backend addresses; trivially copyable, part of op args.
struct StepBatch {
  int32_t tokens = 0;      // T
  int32_t sequences = 0;   // S
  int32_t logit_rows = 0;  // R
  int32_t max_pages = 0;   // columns of block_table
  int32_t decodes = 0;     // of the sequences, the first ones, up to one with more than one token; 0 says nothing
  bool deep = false;       // one of the others has more than kDeep positions

  static constexpr int32_t kDeep = 1024;

  const int32_t* token_ids = nullptr;      // [T]
  const int32_t* pos = nullptr;            // [T] absolute position of each token in its sequence
  const int32_t* seq_of_token = nullptr;   // [T]
  const int32_t* q_begin = nullptr;        // [S+1] tokens q_begin[s] .. q_begin[s+1] belong to sequence s
  const int32_t* kv_len = nullptr;         // [S] cached positions including this step's tokens
  const int32_t* slot = nullptr;           // [T] page * page_size + offset where K and V go; -1 is padding
  const int32_t* block_table = nullptr;    // [S][max_pages] page of each page_size positions
  const int32_t* logit_row_ids = nullptr;  // [R] tokens whose logits are wanted
  const int32_t* state_slot = nullptr;     // [S] where each sequence's recurrent state is kept
};

// Capacities; the arrays of a StepBatch lie in one block of `ints()` int32 at offsets that depend on nothing else.
struct BatchCapacity {
  int32_t max_tokens = 0;
  int32_t max_sequences = 0;
  int32_t max_logit_rows = 0;
  int32_t max_pages = 0;

  [[nodiscard]] int64_t ints() const;
};

struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// The host's copy of the block, filled before each step. Allocates only when made.
class HostBatch {
 public:
  explicit HostBatch(const BatchCapacity& capacity);

  void clear();
  // Starts a sequence whose cached length, this step's tokens included, is kv_len. `pages` are its block table.
  void begin_sequence(int32_t kv_len, const int32_t* pages, int32_t page_count, int32_t state_slot = 0);
  // Adds a token to the sequence begun last.
  void add_token(int32_t id, int32_t position, int32_t slot, bool wants_logits);

  [[nodiscard]] int32_t tokens() const { return tokens_; }
  [[nodiscard]] int32_t sequences() const { return sequences_; }
  [[nodiscard]] int32_t logit_rows() const { return logit_rows_; }
  // From the first token that wants logits to the last one; none: empty, at the end.
  [[nodiscard]] TokenRange wanted() const;
  [[nodiscard]] const BatchCapacity& capacity() const { return capacity_; }
  [[nodiscard]] const std::vector<int32_t>& block() const { return block_; }
  // The StepBatch whose arrays lie in a block at `base` (backend memory, or block().data() itself).
  [[nodiscard]] StepBatch view(const int32_t* base) const;

 private:
  BatchCapacity capacity_;
  std::vector<int32_t> block_;
  int32_t tokens_ = 0;
  int32_t sequences_ = 0;
  int32_t logit_rows_ = 0;
};

}  // namespace inferno
