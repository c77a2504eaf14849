// Inside the scheduler: a request with its samples, and one sample as a sequence of tokens and pages.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/draft_length.h"
#include "engine/ngram_index.h"
#include "engine/request.h"
#include "engine/text_stream.h"
#include "kv/kv_cache.h"

namespace inferno {

using SchedulerClock = std::chrono::steady_clock;

struct ActiveRequest;

// All its memory is there when it is made: steps only fill it.
struct Sequence {
  Sequence(ActiveRequest& of, int32_t sample_index, KvCache& cache, int32_t most_tokens);

  ActiveRequest& request;
  int32_t sample;
  std::vector<int32_t> tokens;  // the prompt, then what was drawn
  int32_t prompt_length;
  int32_t max_tokens;    // that it may have; there is memory for so many
  int32_t computed = 0;  // of tokens: their keys and values are in the cache
  KvSequence kv;
  std::optional<TextStream> text;

  // Of the pages before computed that are full, those listed in the pool, and the key of what follows them.
  int32_t listed_pages = 0;
  PageKey listed_key;
  // That of the last snapshot of its state that it took after its prompt.
  PageKey snapshot_key;

  // Logits of the prompt from this position on are still to be delivered.
  int32_t logits_next = 0;
  // The pool's version when what this prompt begins with was being computed for another.
  std::optional<uint64_t> deferred_at;

  bool running = false;  // holds pages
  bool done = false;
  bool muted = false;  // its callback wants no more
  StopReason reason = StopReason::length;

  // Tokens guessed ahead, where they may be. By the draft model: what it has computed of the tokens, in pages of its
  // own.
  enum DraftSource : uint8_t { from_text, from_model, from_grammar };
  bool speculates = false;
  std::optional<NgramIndex> ngrams;
  std::optional<KvSequence> draft_kv;
  int32_t draft_computed = 0;
  std::array<DraftLength, 3> draft_lengths;  // by source
  int32_t drafted = 0;                       // so far
  int32_t accepted = 0;

  // In the step being made.
  int32_t step_length = 0;  // of the tokens; while the step runs, guesses follow them
  int32_t step_tokens = 0;
  int32_t step_rows = 0;  // logit rows; when `draws` the last 1 + draft_count are drawn from
  bool draws = false;
  std::array<int32_t, kMostDraft> draft;  // what may follow the tokens
  int32_t draft_count = 0;
  int32_t draft_wanted = 0;
  DraftSource draft_source = from_text;
  double draft_price = 0;  // of each, and of guessing at all (draft_length.h)
  double draft_entry = 0;
  bool sits_out = false;       // its mask is late
  int32_t mask_ready_at = -1;  // the length of the text whose mask is there
  // Tokens that may be drawn in the rows that are drawn from; empty: all.
  std::array<std::span<const uint32_t>, kMostDraft + 1> allowed;

  bool is_started = false;
  int32_t chunk = 0;  // tokens of its last step
  SchedulerClock::time_point forward_begin, first_token, last_token;
  double forward_total_ms = 0;
  int32_t forwards = 0;
  int32_t drawn = 0;  // tokens, those that ended it included

  [[nodiscard]] int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  [[nodiscard]] int32_t remaining() const { return length() - computed; }
  // Of the draft model.
  [[nodiscard]] int32_t remaining_draft() const { return length() - draft_computed; }
  [[nodiscard]] int32_t generated() const { return length() - prompt_length; }
  [[nodiscard]] std::span<const int32_t> generated_tokens() const {
    return std::span(tokens).subspan(static_cast<size_t>(prompt_length));
  }
};

struct ActiveRequest final : Ticket {
  ActiveRequest(Request asked, uint64_t arrival);

  Request request;
  uint64_t order;        // of arrival: the larger, the younger
  uint64_t cancels = 0;  // of the scheduler when it was submitted
  PageKey root;          // of its prompt's first page
  std::vector<std::unique_ptr<Sequence>> sequences;
  bool prompt_done = false;  // sample 0 has its first token: the others can share its pages
  int32_t open = 0;          // sequences that are not done
  SchedulerClock::time_point submitted;

  [[nodiscard]] RequestResult& mutable_result() { return result_; }
  // The caller may keep the ticket for long, and longer than the cache: what it does not need goes now.
  void publish() noexcept {
    sequences.clear();
    request = {};
    finish();
  }
};

}  // namespace inferno
