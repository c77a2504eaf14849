// Masks of the rows that tokens are drawn from.
#include <algorithm>
#include <thread>

#include "base/error.h"
#include "engine/scheduler.h"

namespace inferno {
namespace {

// Between looks whether a mask that takes long is there, when there is nothing else to do.
constexpr std::chrono::microseconds kMaskNap{50};

}  // namespace

bool Scheduler::is_late(Sequence& s) const {
  const Request& request = s.request.request;
  if (!request.mask_ready || !request.allowed) return false;
  try {
    s.sits_out = !request.mask_ready(s.sample, s.generated_tokens(), 0);
  } catch (...) {
    return false;  // it is asked again where the request can end
  }
  if (!s.sits_out) s.mask_ready_at = s.length();
  return s.sits_out;
}

// A request whose mask cannot be had leaves the step, and a row whose mask is late sits it out.
void Scheduler::fetch_masks() {
  if (step_has_masks_) {
    mask_rows_ = 0;
    for (Sequence* s : step_) {
      const Request& request = s->request.request;
      if (!s->draws || !request.allowed || s->done) continue;
      try {
        if (s->mask_ready_at != s->length() && request.mask_ready &&
            !request.mask_ready(s->sample, s->generated_tokens(), 0)) {
          s->step_tokens = 0;
          any_late_ = true;
        } else {
          fetch_row_masks(*s);
        }
      } catch (...) {
        s->tokens.resize(static_cast<size_t>(s->step_length));
        fail(s->request, std::current_exception());
      }
    }
    std::erase_if(step_, [](const Sequence* s) { return s->done || s->step_tokens == 0; });
    measure_step();
  }
  // Nobody else has anything to do meanwhile.
  if (any_late_ && step_.empty()) std::this_thread::sleep_for(kMaskNap);
}

// Each as if the guesses before it were tokens, up to a guess that may not come or whose mask takes long.
void Scheduler::fetch_row_masks(Sequence& s) {
  const Request& request = s.request.request;
  const auto words = static_cast<size_t>(bitset_words(vocabulary_));
  for (int32_t i = 0; i <= s.draft_count; ++i) {
    if (i > 0) {
      s.tokens.push_back(s.draft[static_cast<size_t>(i - 1)]);  // there is room, as in add_to_batch()
      if (!request.mask_ready(s.sample, s.generated_tokens(), i)) {
        cut_draft(s, i - 1);
        break;
      }
    }
    std::span<const uint32_t> mask = fetch_mask(s);
    if (s.draft_count > 0 && !mask.empty()) {
      // The next question takes it away.
      const std::span<uint32_t> kept(row_masks_.get() + static_cast<size_t>(mask_rows_++) * words, words);
      std::ranges::copy(mask, kept.begin());
      mask = kept;
    }
    s.allowed[static_cast<size_t>(i)] = mask;
    if (i == s.draft_count || mask.empty()) continue;
    const auto guess = static_cast<uint32_t>(s.draft[static_cast<size_t>(i)]);
    if ((mask[guess / 32] >> (guess % 32) & 1) == 0) cut_draft(s, i);
  }
  s.tokens.resize(static_cast<size_t>(s.step_length));
}

std::span<const uint32_t> Scheduler::fetch_mask(const Sequence& s) const {
  const std::span<const uint32_t> mask = s.request.request.allowed(s.sample, s.generated_tokens());
  const auto words = static_cast<size_t>(bitset_words(vocabulary_));
  if (!mask.empty() && mask.size() != words) {
    inferno::fail("a mask of allowed tokens has {} words, the vocabulary needs {}", mask.size(), words);
  }
  return mask;
}

void Scheduler::cut_draft(Sequence& s, int32_t count) {
  s.step_rows -= s.draft_count - count;
  s.draft_count = count;
}

void Scheduler::measure_step() {
  shape_ = {};
  for (const Sequence* s : step_) {
    shape_ = shape_.with(s->computed, s->step_tokens + s->draft_count, s->step_rows);
  }
}

}  // namespace inferno
