// What goes into a step: all that decode, then prompts as far as the time target allows.
#include <algorithm>
#include <cmath>

#include "engine/scheduler.h"

namespace inferno {
namespace {

// Steps after which a prompt gets its least chunk although decoding alone takes all of the time target.
constexpr int32_t kPatience = 8;
// What prompts get of a step at least, as a share of its target, where nobody gave that.
constexpr double kPromptShare = 0.7;
// Prompts that are alone have chunks of a multiple of this. Beside others a chunk that does not finish its prompt fills
// the step's last tile: products work in tiles of tokens, whosever these are, so that 17 may take as long as 32.
constexpr int32_t kTile = 16;
constexpr int32_t kQuarterTile = kTile / 4;
constexpr int32_t kLargeTile = 64;
// How many times as long as the one before a chunk of a long step may be.
constexpr int32_t kGrowth = 4;
// How far steps may exceed a target for whole tiles, and for there to be one fewer of a prompt alone.
constexpr double kStretch = 1.15;

int32_t round_up(int32_t value, int32_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Tokens left, less what waiting has earned.
double priority(const Sequence& s, SchedulerClock::time_point now) {
  return s.remaining() - Scheduler::kAgeingTokens * std::chrono::duration<double>(now - s.request.submitted).count();
}

}  // namespace

void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    s.sits_out = false;
    if (s.remaining() != 1) {
      ++i;
    } else if (is_late(s)) {
      any_late_ = true;
      ++i;
    } else if (make_room(s)) {  // may preempt sequences after this one
      add_to_step(s, 1);
      ++i;
    }  // else it gave up its own place
  }
}

// A step of those that decode, alone. While prompts are in every step the cost model sees no such step and may credit
// prompts' time to it, so the estimate is not above what the last ones took.
double Scheduler::decode_seconds() const {
  const double expected = cost_.seconds(shape_);
  if (decode_only_.tokens == 0) return expected;
  const double more = std::max(1.0, static_cast<double>(shape_.tokens) / decode_only_.tokens);
  return std::min(expected, more * decode_only_.seconds);
}

void Scheduler::plan_prompts() {
  const bool decoding = !step_.empty();
  target_seconds_ = decoding ? latency_seconds_ : prompt_step_seconds_;
  if (decoding && latency_may_grow_) {
    const double decode = decode_seconds();
    target_seconds_ = std::max(target_seconds_, decode + std::max(decode, kPromptShare * latency_seconds_));
  }
  if (waiting_.empty() && step_.size() == running_.size()) return;
  const SchedulerClock::time_point now = SchedulerClock::now();
  ++steps_without_prompt_;
  while (Sequence* s = next_prompt(now)) {
    if (!s->running) {
      const Admission admission = admit(*s);
      if (admission == Admission::deferred) continue;  // is_ready() is false now
      if (admission == Admission::no_pages) break;     // those that run will give some back
    }
    int32_t tokens = chunk_within(*s, target_seconds_);
    const int32_t least = least_chunk(*s);
    const bool too_small = tokens < least;
    if (too_small && decoding && steps_without_prompt_ > 0) {
      tokens = chunk_on_credit(*s, target_seconds_);
    } else if (too_small) {
      tokens = step_.empty() ? least : 0;
    } else {
      credit_seconds_ = 0;
      if (decoding) tokens = std::min(tokens, familiar_chunk(*s, tokens));
    }
    if (tokens == 0) break;
    steps_without_prompt_ = 0;
    add_to_step(*s, tokens);
  }
}

// The best of the prompts that are not in the step yet: begun ones, and waiting ones while there is a place for them.
Sequence* Scheduler::next_prompt(SchedulerClock::time_point now) const {
  Sequence* best = nullptr;
  double best_priority = 0;
  const auto consider = [&](Sequence* s) {
    const double p = priority(*s, now);
    if (best == nullptr || p < best_priority) {
      best = s;
      best_priority = p;
    }
  };
  int32_t open = 0;
  for (Sequence* s : running_) {
    if (s->sits_out) continue;
    if (s->step_tokens == 0) consider(s);
    open += s->remaining() > s->step_tokens ? 1 : 0;
  }
  if (open < kOpenPrompts && running_.size() < static_cast<size_t>(decoder_.limits().max_sequences)) {
    for (Sequence* s : waiting_) {
      if (is_ready(*s)) consider(s);
    }
  }
  return best;
}

bool Scheduler::is_ready(const Sequence& s) const {
  return (s.sample == 0 || s.request.prompt_done) && s.deferred_at != cache_.pool().version();
}

int32_t Scheduler::largest_chunk(const Sequence& s) const {
  const StepLimits& limits = decoder_.limits();
  if (static_cast<int32_t>(step_.size()) == limits.max_sequences) return 0;
  int32_t most = std::min(s.remaining(), limits.max_tokens - shape_.tokens);
  const int32_t rows = limits.max_logit_rows - shape_.rows;
  const Request& request = s.request.request;
  if (request.logits_from && s.sample == 0 && s.computed < s.prompt_length) {
    most = std::min(most, rows + std::max(0, s.logits_next - s.computed));
  }
  if (rows == 0) most = std::min(most, s.remaining() - 1);  // the last token is drawn from
  if (const int32_t end = snapshot_position(s); s.computed < end) most = std::min(most, end - s.computed);
  return most;
}

int32_t Scheduler::chunk_within(const Sequence& s, double limit) const {
  const int32_t most = largest_chunk(s);
  const int32_t tokens = cost_.tokens_within(limit, shape_, s.computed, most, 1);
  if (tokens == most) return tokens;
  if (step_.empty()) {
    // Equal chunks: a short last one would read all weights for a few tokens.
    const double parts = std::ceil(s.remaining() / (kStretch * std::max(tokens, kTile)));
    const auto equal = static_cast<int32_t>(std::ceil(s.remaining() / parts));
    return std::min(round_up(equal, equal >= 2 * kLargeTile ? kLargeTile : kTile), most);
  }
  const int32_t others = shape_.tokens;
  if (tokens >= 4 * kLargeTile) return (others + tokens) / kLargeTile * kLargeTile - others;
  const int32_t tile = backend_.token_tile();
  const auto whole_tiles = [&](int32_t room) { return (others + room) / tile * tile - others; };
  // Not where that would be much less: what a step does besides is then paid too often.
  const auto is_enough = [&](int32_t whole) { return 4 * whole >= 3 * tokens; };
  const int32_t within = whole_tiles(tokens);
  if (is_enough(within)) return within;
  // A target that nobody gave may be exceeded for whole tiles: with half of one less, steps would end far before it.
  if (latency_may_grow_) {
    const int32_t room = cost_.tokens_within(kStretch * limit, shape_, s.computed, most, 1);
    if (room == most) return most;
    if (is_enough(whole_tiles(room))) return whole_tiles(room);
  }
  return tokens / kQuarterTile * kQuarterTile;
}

int32_t Scheduler::least_chunk(const Sequence& s) const {
  return std::min(round_up(shape_.tokens + kLeastChunk, backend_.token_tile()) - shape_.tokens, largest_chunk(s));
}

// A prompt's first chunk writes to memory that may never have been touched, which no cost model foresees. And how long
// far more tokens will take than were in a step before is a guess, which matters where it comes near the target.
int32_t Scheduler::familiar_chunk(const Sequence& s, int32_t tokens) const {
  if (!s.is_started) return least_chunk(s);
  if (cost_.seconds(shape_.with(s.computed, tokens, 0)) < target_seconds_ / 2) return tokens;
  return std::max(least_chunk(s), kGrowth * s.chunk);
}

int32_t Scheduler::chunk_on_credit(const Sequence& s, double limit) {
  const int32_t tokens = least_chunk(s);
  if (tokens == 0) return 0;
  const double alone = cost_.seconds(shape_);
  credit_seconds_ += std::max(0.0, limit - alone);
  const double price = cost_.seconds(shape_.with(s.computed, tokens, 0)) - alone;
  if (credit_seconds_ < price && steps_without_prompt_ < kPatience) return 0;
  credit_seconds_ = std::max(0.0, credit_seconds_ - price);
  return tokens;
}

void Scheduler::add_to_step(Sequence& s, int32_t tokens) {
  const Request& request = s.request.request;
  s.step_length = s.length();
  s.step_tokens = tokens;
  s.chunk = tokens;
  s.draws = tokens == s.remaining() && request.max_new_tokens != 0;
  s.step_rows = s.draws ? 1 : 0;
  s.allowed.fill({});
  s.draft_count = 0;
  step_may_draft_ = step_may_draft_ || s.speculates;
  step_has_masks_ = step_has_masks_ || (s.draws && request.allowed);
  if (request.logits_from && s.sample == 0 && s.computed < s.prompt_length) {
    const int32_t first = std::max(s.logits_next, s.computed);
    s.step_rows = std::max(s.step_rows, s.computed + tokens - first);
    step_shows_logits_ = step_shows_logits_ || s.step_rows > 0;
  }
  if (!s.is_started) {
    s.is_started = true;
    s.forward_begin = SchedulerClock::now();
    if (s.sample == 0) {
      s.request.mutable_result().metrics.queue_ms =
          std::chrono::duration<double, std::milli>(s.forward_begin - s.request.submitted).count();
    }
  }
  shape_ = shape_.with(s.computed, tokens, s.step_rows);
  step_.push_back(&s);
}

}  // namespace inferno
