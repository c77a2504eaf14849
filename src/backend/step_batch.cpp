#include "backend/step_batch.h"

#include <algorithm>

#include "base/error.h"

namespace inferno {
namespace {

// Offsets of the arrays inside the block, in int32.
struct Offsets {
  explicit Offsets(const BatchCapacity& c)
      : pos(c.max_tokens),
        seq_of_token(pos + c.max_tokens),
        slot(seq_of_token + c.max_tokens),
        q_begin(slot + c.max_tokens),
        kv_len(q_begin + c.max_sequences + 1),
        state_slot(kv_len + c.max_sequences),
        logit_row_ids(state_slot + c.max_sequences),
        block_table(logit_row_ids + c.max_logit_rows),
        end(block_table + int64_t{c.max_sequences} * c.max_pages) {}
  int64_t pos, seq_of_token, slot, q_begin, kv_len, state_slot, logit_row_ids, block_table, end;
};

}  // namespace

int64_t BatchCapacity::ints() const {
  return Offsets(*this).end;
}

HostBatch::HostBatch(const BatchCapacity& capacity)
    : capacity_(capacity), block_(static_cast<size_t>(capacity.ints()), 0) {}

void HostBatch::clear() {
  tokens_ = 0;
  sequences_ = 0;
  logit_rows_ = 0;
}

void HostBatch::begin_sequence(int32_t kv_len, const int32_t* pages, int32_t page_count, int32_t state_slot) {
  INFERNO_CHECK(sequences_ < capacity_.max_sequences && page_count <= capacity_.max_pages);
  const Offsets at(capacity_);
  block_[static_cast<size_t>(at.q_begin + sequences_)] = tokens_;
  block_[static_cast<size_t>(at.q_begin + sequences_ + 1)] = tokens_;
  block_[static_cast<size_t>(at.kv_len + sequences_)] = kv_len;
  block_[static_cast<size_t>(at.state_slot + sequences_)] = state_slot;
  std::copy_n(pages, page_count, block_.begin() + at.block_table + int64_t{sequences_} * capacity_.max_pages);
  ++sequences_;
}

void HostBatch::add_token(int32_t id, int32_t position, int32_t slot, bool wants_logits) {
  INFERNO_CHECK(sequences_ > 0 && tokens_ < capacity_.max_tokens);
  const Offsets at(capacity_);
  block_[static_cast<size_t>(tokens_)] = id;
  block_[static_cast<size_t>(at.pos + tokens_)] = position;
  block_[static_cast<size_t>(at.seq_of_token + tokens_)] = sequences_ - 1;
  block_[static_cast<size_t>(at.slot + tokens_)] = slot;
  if (wants_logits) {
    INFERNO_CHECK(logit_rows_ < capacity_.max_logit_rows);
    block_[static_cast<size_t>(at.logit_row_ids + logit_rows_)] = tokens_;
    ++logit_rows_;
  }
  ++tokens_;
  block_[static_cast<size_t>(at.q_begin + sequences_)] = tokens_;
}

TokenRange HostBatch::wanted() const {
  if (logit_rows_ == 0) return {tokens_, tokens_};
  const int32_t* rows = block_.data() + Offsets(capacity_).logit_row_ids;
  return {rows[0], rows[logit_rows_ - 1] + 1};
}

StepBatch HostBatch::view(const int32_t* base) const {
  const Offsets at(capacity_);
  StepBatch batch;
  batch.tokens = tokens_;
  batch.sequences = sequences_;
  batch.logit_rows = logit_rows_;
  batch.max_pages = capacity_.max_pages;
  const int32_t* begins = block_.data() + at.q_begin;
  while (batch.decodes < sequences_ && begins[batch.decodes + 1] - begins[batch.decodes] == 1) ++batch.decodes;
  for (int32_t s = batch.decodes; s < sequences_; ++s) {
    batch.deep = batch.deep || block_[static_cast<size_t>(at.kv_len + s)] > StepBatch::kDeep;
  }
  batch.token_ids = base;
  batch.pos = base + at.pos;
  batch.seq_of_token = base + at.seq_of_token;
  batch.slot = base + at.slot;
  batch.q_begin = base + at.q_begin;
  batch.kv_len = base + at.kv_len;
  batch.logit_row_ids = base + at.logit_row_ids;
  batch.state_slot = base + at.state_slot;
  batch.block_table = base + at.block_table;
  return batch;
}

}  // namespace inferno
