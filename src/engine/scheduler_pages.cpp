// Pages of sequences: taking them, sharing them, listing what they hold, giving them back.
#include <algorithm>

#include "engine/draft_model.h"
#include "engine/scheduler.h"

namespace inferno {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;

bool reuses(const Sequence& s) {
  return s.request.request.reuse_prefix && !s.request.request.recompute;
}

std::span<const int32_t> tokens_of_page(const Sequence& s, int32_t page) {
  return std::span(s.tokens).subspan(static_cast<size_t>(page) * kPage, kPage);
}

// By arrival; samples of one request in their order.
bool is_older(const Sequence* a, const Sequence* b) {
  return a->request.order != b->request.order ? a->request.order < b->request.order : a->sample < b->sample;
}

}  // namespace

int32_t Scheduler::keep_pages_with_state(const Sequence& s, PagePool::Match& match) {
  PageKey key = s.request.root;
  PageKey best_key = key;
  int32_t best = 0;
  int32_t slot = -1;
  for (int32_t page = 0; page < match.pages; ++page) {
    key = page_key(key, tokens_of_page(s, page));
    const int32_t found = snapshots_.find(key);
    if (found < 0) continue;
    best = page + 1;
    best_key = key;
    slot = found;
  }
  if (best < match.pages || match.tail_tokens > 0) match.end = ReuseEnd::recurrent;
  match.pages = best;
  match.key = best_key;
  match.tail = -1;
  match.tail_tokens = 0;
  return slot;
}

int32_t Scheduler::snapshot_position(const Sequence& s) const {
  return cache_.has_states() && reuses(s) ? (s.prompt_length - 1) / kPage * kPage : 0;
}

Scheduler::Admission Scheduler::admit(Sequence& s) {
  PagePool& pool = cache_.pool();
  // The last token is computed in any case, for its logits, and so is what the request wants to see logits of.
  int32_t reusable = s.length() - 1;
  if (s.request.request.logits_from && s.sample == 0) reusable = std::min(reusable, s.logits_next);
  PagePool::Match match;
  match.key = s.request.root;
  match.end = ReuseEnd::off;
  int32_t state = -1;
  if (reuses(s)) {
    match = pool.find(s.request.root, std::span(s.tokens).first(static_cast<size_t>(reusable)), found_pages_);
    if (match.promised) {
      s.deferred_at = pool.version();
      return Admission::deferred;
    }
    if (cache_.has_states()) state = keep_pages_with_state(s, match);
  }
  s.kv.share(std::span(found_pages_).first(static_cast<size_t>(match.pages)));
  bool copies = match.tail_tokens >= kLeastCopied;
  if (copies) pool.retain(match.tail);  // or making room might evict it
  const int32_t wanted = std::min(s.length() + 1, max_positions_);
  bool has_room = s.kv.resize(wanted);
  if (!has_room && copies) {
    pool.release(match.tail);
    copies = false;
    has_room = s.kv.resize(wanted);
  }
  if (!has_room) {
    s.kv.clear();
    return Admission::no_pages;
  }
  s.computed = match.pages * kPage;
  if (state >= 0) cache_.slots().copy(state, s.kv.state_slot());
  if (copies) {
    cache_.copy_page(match.tail, s.kv.pages()[static_cast<size_t>(match.pages)]);
    s.computed += match.tail_tokens;
    pool.release(match.tail);
  }
  s.listed_pages = match.pages;
  s.listed_key = match.key;
  stats_.reused_tokens += s.computed;
  if (s.sample == 0 && !s.is_started) {
    RequestMetrics& metrics = s.request.mutable_result().metrics;
    metrics.reused_tokens = s.computed;
    metrics.reuse_end = match.end;
  }
  promise_pages(s);
  std::erase(waiting_, &s);
  running_.insert(std::ranges::upper_bound(running_, &s, is_older), &s);
  s.running = true;
  return Admission::running;
}

// Full pages that this sequence is about to compute.
void Scheduler::promise_pages(Sequence& s) {
  if (!reuses(s)) return;
  PageKey parent = s.listed_key;
  for (int32_t page = s.listed_pages; (page + 1) * kPage <= s.length(); ++page) {
    cache_.pool().promise(s.kv.pages()[static_cast<size_t>(page)], parent, tokens_of_page(s, page));
    parent = page_key(parent, tokens_of_page(s, page));
  }
}

// Full pages that are computed, and where the prompt ends the page that is not full; or a snapshot of the state.
void Scheduler::list_pages(Sequence& s) {
  if (!reuses(s)) return;
  for (; (s.listed_pages + 1) * kPage <= s.computed; ++s.listed_pages) {
    const std::span<const int32_t> tokens = tokens_of_page(s, s.listed_pages);
    cache_.pool().list(s.kv.pages()[static_cast<size_t>(s.listed_pages)], s.listed_key, tokens);
    s.listed_key = page_key(s.listed_key, tokens);
  }
  if (cache_.has_states()) {
    // Of what follows the prompt only the last state is worth its memory.
    if (s.done || s.listed_pages == 0 || s.listed_pages * kPage != s.computed) return;
    snapshots_.keep(s.listed_key, s.kv.state_slot(), s.snapshot_key);
    if (s.computed > s.prompt_length) s.snapshot_key = s.listed_key;
    return;
  }
  if (s.computed == s.prompt_length || s.done) {
    const int32_t first = s.listed_pages * kPage;
    if (s.computed == first) return;
    cache_.pool().list(
        s.kv.pages()[static_cast<size_t>(s.listed_pages)], s.listed_key,
        std::span(s.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(s.computed - first)));
  }
}

// A page for the next token; the youngest gives way. False when that was the sequence itself.
bool Scheduler::make_room(Sequence& s) {
  if (s.kv.capacity() >= s.length()) return true;
  while (!s.kv.resize(s.length())) {
    Sequence& youngest = *running_.back();
    if (&youngest == &s && running_.size() == 1) {
      finish(s, StopReason::context_full);
      return false;
    }
    preempt(youngest);
    if (&youngest == &s) return false;
  }
  return true;
}

void Scheduler::preempt(Sequence& s) {
  if (s.draft_kv) draft_model_->leave(s);
  s.kv.clear();
  s.computed = 0;
  s.listed_pages = 0;
  s.snapshot_key = {};
  s.running = false;
  s.deferred_at.reset();
  std::erase(running_, &s);
  waiting_.push_back(&s);
  ++s.request.mutable_result().metrics.preemptions;
  stats_.preemptions += 1;
}

void Scheduler::leave(Sequence& s) {
  if (!s.running) {
    std::erase(waiting_, &s);
    return;
  }
  list_pages(s);
  if (s.draft_kv) draft_model_->leave(s);
  s.kv.clear();
  s.running = false;
  std::erase(running_, &s);
}

}  // namespace inferno
