// Tokens guessed ahead: which sequences of a step have how many, and what came of them.
#include <algorithm>

#include "base/error.h"
#include "engine/draft_model.h"
#include "engine/scheduler.h"

namespace inferno {

void check_drafts(const Request& request, bool has_states, int32_t vocabulary) {
  if (request.max_draft < 0 || request.max_draft > kMostDraft) {
    fail_usage("`max_draft` is {}, must be 0 to {}", request.max_draft, kMostDraft);
  }
  for (const int32_t id : request.prediction) {
    if (id < 0 || id >= vocabulary)
      fail("token id {} of the prediction is not in the vocabulary (0 to {})", id, vocabulary - 1);
  }
  if (has_states && (request.lookup || !request.prediction.empty() || request.guess)) {
    fail_usage(
        "this model has recurrent layers, which cannot take tokens back: it cannot guess ahead; leave `lookup` out");
  }
}

// On the thread that submits: the memory, and the index of the prompt.
void Scheduler::prepare_drafts(Sequence& s) {
  const Request& request = s.request.request;
  const bool forced = request.forced && request.allowed && request.mask_ready && !cache_.has_states();
  if ((request.allowed && !forced) || request.recompute || request.max_draft == 0) return;
  if (s.max_tokens - s.prompt_length < 3) return;
  if (request.guess) {
    s.speculates = true;
    return;
  }
  if (request.lookup || !request.prediction.empty()) {
    s.ngrams.emplace(request.prediction, s.max_tokens);
    s.ngrams->update(s.tokens);
  }
  if (request.draft && draft_model_ != nullptr) s.draft_kv.emplace(draft_model_->cache());
  s.speculates = forced || s.ngrams || s.draft_kv;
}

int32_t Scheduler::draft_room(const Sequence& s) const {
  // One more token is drawn than was guessed.
  return std::min({s.request.request.max_draft, s.max_tokens - s.length() - 1,
                   decoder_.limits().max_tokens - shape_.tokens, decoder_.limits().max_logit_rows - shape_.rows});
}

int32_t Scheduler::drafts_within(const Sequence& s, int32_t count, double limit) const {
  while (count > 0 && cost_.seconds(shape_.with(s.length(), count, count)) > limit) --count;
  return count;
}

double Scheduler::draft_price(const Sequence& s) const {
  if (fixed_draft_price_ > 0) return fixed_draft_price_;
  const double more = cost_.seconds(shape_.with(s.length(), 1, 1)) - cost_.seconds(shape_);
  return more * static_cast<double>(step_.size()) / step_alone_seconds_;
}

// Who asked knows what may follow; an exception ends the request.
int32_t Scheduler::ask_for_guess(const GuessTokens& guess, Sequence& s, std::span<int32_t> room) {
  try {
    const int32_t count = guess(s.sample, s.generated_tokens(), room);
    return std::clamp(count, 0, static_cast<int32_t>(room.size()));
  } catch (...) {
    fail(s.request, std::current_exception());
    return 0;
  }
}

void Scheduler::guess_by(const GuessTokens& guess, Sequence& s, Sequence::DraftSource source, double limit) {
  const int32_t wanted = s.draft_lengths[source].choose(draft_room(s), s.draft_price);
  const std::span<int32_t> room = std::span(s.draft).first(static_cast<size_t>(drafts_within(s, wanted, limit)));
  s.draft_source = source;
  if (room.empty()) return;
  if (guess) {
    s.draft_count = ask_for_guess(guess, s, room);
  } else if (s.ngrams) {
    s.ngrams->update(s.tokens);
    s.draft_count = s.ngrams->draft(room);
  }
}

// After those that decode, one token each, and before prompts: guesses take half of what is left of the time target.
void Scheduler::plan_drafts() {
  if (!step_may_draft_) return;
  step_alone_seconds_ = cost_.seconds(shape_);
  const double left = latency_seconds_ - step_alone_seconds_;
  if (!(left > 0 && step_alone_seconds_ > 0)) return;
  const double limit = step_alone_seconds_ + left / 2;
  drafting_.clear();
  for (Sequence* s : step_) {
    s->draft_price = s->draft_entry = 0;
    if (!s->speculates || s->generated() == 0) continue;
    s->draft_price = draft_price(*s);
    const Request& request = s->request.request;
    if (request.forced) guess_by(request.forced, *s, Sequence::from_grammar, limit);
    if (s->draft_count == 0) guess_by(request.guess, *s, Sequence::from_text, limit);
    if (s->draft_count > 0) {
      add_draft(*s);
    } else if (s->draft_kv) {
      drafting_.push_back(s);
    }
  }
  if (!drafting_.empty()) plan_model_drafts(limit);
  std::erase_if(step_, [](const Sequence* s) { return s->done; });
}

// The draft model has its own cache to keep up with, and its steps are part of what a guess costs.
void Scheduler::plan_model_drafts(double limit) {
  const double share = (limit - step_alone_seconds_) / static_cast<double>(drafting_.size());
  const double tokens_per_second = static_cast<double>(step_.size()) / step_alone_seconds_;
  try {
    std::erase_if(drafting_, [&](Sequence* s) { return !draft_model_->catch_up(*s, share); });
    const auto together = static_cast<int32_t>(drafting_.size());
    const StepShape before = shape_;
    for (Sequence* s : drafting_) {
      const double seconds = draft_model_->seconds(s->length(), together) / together;
      s->draft_price = draft_price(*s) + (fixed_draft_price_ > 0 ? 0 : seconds * tokens_per_second);
      // What it has not seen of the text beyond the tokens of the last step.
      const int32_t unseen = s->length() - std::max(s->draft_computed, s->prompt_length) - 2;
      s->draft_entry =
          unseen > 0 && fixed_draft_price_ == 0 ? draft_model_->seconds(s->length(), unseen) * tokens_per_second : 0;
      s->draft_wanted = s->draft_lengths[Sequence::from_model].choose(draft_room(*s), s->draft_price, s->draft_entry);
      s->draft_wanted = drafts_within(*s, s->draft_wanted, limit);
      while (s->draft_wanted > 0 && s->draft_wanted * seconds * together > limit - step_alone_seconds_)
        --s->draft_wanted;
      shape_ = shape_.with(s->length(), s->draft_wanted, s->draft_wanted);
    }
    shape_ = before;
    std::erase_if(drafting_, [](const Sequence* s) { return s->draft_wanted == 0; });
    draft_model_->guess(drafting_);
    for (Sequence* s : drafting_) {
      s->draft_source = Sequence::from_model;
      add_draft(*s);
    }
  } catch (...) {
    // The text is as it was; but a backend that fails there fails here.
    const std::exception_ptr error = std::current_exception();
    for (Sequence* s : drafting_) fail(s->request, error);
  }
}

// Pages for the guesses, as far as there are any; nobody gives way for them.
void Scheduler::add_draft(Sequence& s) {
  const int32_t end = s.length() + s.draft_count;
  if (s.kv.capacity() < end && !s.kv.resize(end)) s.draft_count = std::max(0, s.kv.capacity() - s.length());
  s.step_rows += s.draft_count;
  shape_ = shape_.with(s.length(), s.draft_count, s.draft_count);
}

void Scheduler::count_drafts(Sequence& s, int32_t accepted) {
  for (size_t source = 0; source < s.draft_lengths.size(); ++source) {
    const bool used = source == s.draft_source && s.draft_count > 0;
    s.draft_lengths[source].observe(used ? s.draft_count : 0, used ? accepted : 0, s.draft_price,
                                    used ? s.draft_entry : 0);
  }
  s.drafted += s.draft_count;
  s.accepted += accepted;
  stats_.drafts += s.draft_count > 0 ? 1 : 0;
  stats_.drafted_tokens += s.draft_count;
  stats_.accepted_tokens += accepted;
  // What the draft model computed of wrong guesses is no part of the text.
  if (s.draft_kv) DraftModel::cut(s, s.step_length + accepted);
}

}  // namespace inferno
