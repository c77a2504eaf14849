#include "kv/page_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"

namespace inferno {
namespace {

// Siblings of a page that are compared with a text that goes on differently: those listed last.
constexpr int kMaxSiblings = 64;

uint64_t mix(uint64_t x) {  // splitmix64's finalizer: every input bit reaches every output bit
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Two chains with different odd multipliers; each input goes through both.
void absorb(PageKey& key, uint64_t value) {
  key.low = mix(key.low * 0x9e3779b97f4a7c15ULL + value);
  key.high = mix(key.high * 0xd6e8feb86659fd93ULL + (value ^ key.low));
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

PageKey root_key(std::string_view salt) {
  PageKey key{.low = 0x243f6a8885a308d3ULL, .high = 0x13198a2e03707344ULL};
  absorb(key, salt.size());
  for (const char c : salt) absorb(key, static_cast<unsigned char>(c));
  return key;
}

PageKey page_key(const PageKey& parent, std::span<const int32_t> tokens) {
  PageKey key = parent;
  for (const int32_t token : tokens) absorb(key, static_cast<uint32_t>(token));
  return key;
}

std::string_view to_string(ReuseEnd end) {
  switch (end) {
    case ReuseEnd::off:
      return "off";
    case ReuseEnd::complete:
      return "complete";
    case ReuseEnd::unseen:
      return "unseen";
    case ReuseEnd::differs:
      return "differs";
    case ReuseEnd::evicted:
      return "evicted";
    case ReuseEnd::incomplete:
      return "incomplete";
    case ReuseEnd::recurrent:
      return "recurrent";
  }
  return "";
}

PagePool::PagePool(int32_t pages, int32_t page_size)
    : page_size_(page_size),
      pages_(static_cast<size_t>(pages)),
      token_memory_(static_cast<size_t>(pages) * static_cast<size_t>(page_size)),
      by_key_(std::bit_ceil(static_cast<size_t>(pages) + 1), kNone),
      by_parent_(by_key_.size(), kNone),
      evicted_(by_key_.size()) {
  free_.reserve(static_cast<size_t>(pages));
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

std::span<const int32_t> PagePool::tokens_of(int32_t page) const {
  return std::span(token_memory_)
      .subspan(static_cast<size_t>(page) * static_cast<size_t>(page_size_), static_cast<size_t>(at(page).tokens));
}

int32_t PagePool::allocate() {
  int32_t page = kNone;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (oldest_ != kNone) {
    page = oldest_;
    unlink(page);
    remember_evicted(page);
    unlist(page);
    ++evictions_;
  } else {
    return kNone;
  }
  at(page).references = 1;
  return page;
}

void PagePool::retain(int32_t page) {
  if (at(page).evicts) unlink(page);
  ++at(page).references;
}

void PagePool::release(int32_t page) {
  Page& p = at(page);
  INFERNO_CHECK(p.references > 0);
  if (--p.references > 0) return;
  if (p.state == State::listed) {
    push_newest(page);
    return;
  }
  if (p.state == State::promised) unlist(page);
  free_.push_back(page);
}

PagePool::Match PagePool::find(const PageKey& root, std::span<const int32_t> tokens, std::span<int32_t> found) const {
  Match match;
  const auto size = static_cast<size_t>(page_size_);
  PageKey& parent = match.key;
  parent = root;
  while (tokens.size() >= size) {
    const std::span<const int32_t> own = tokens.first(size);
    const PageKey key = page_key(parent, own);
    const int32_t page = find_full(key, parent, own);
    if (page == kNone) {
      if (evicted_[bucket(key)] == key) match.end = ReuseEnd::evicted;
      break;
    }
    if (at(page).state == State::promised) {
      match.promised = true;
      match.end = ReuseEnd::incomplete;
      return match;
    }
    found[static_cast<size_t>(match.pages++)] = page;
    tokens = tokens.subspan(size);
    parent = key;
  }
  if (tokens.empty()) {
    match.end = ReuseEnd::complete;
    return match;
  }
  // The page that goes on as the text does for longest.
  bool differs = false;
  int visited = 0;
  for (int32_t page = by_parent_[bucket(parent)]; page != kNone && visited < kMaxSiblings;
       page = at(page).next_sibling) {
    if (at(page).parent != parent || at(page).state != State::listed) continue;
    ++visited;
    const auto common = static_cast<int32_t>(common_prefix(tokens_of(page), tokens));
    differs = differs || (common < at(page).tokens && static_cast<size_t>(common) < tokens.size());
    if (common <= match.tail_tokens) continue;
    match.tail = page;
    match.tail_tokens = common;
  }
  if (static_cast<size_t>(match.tail_tokens) == tokens.size()) {
    match.end = ReuseEnd::complete;
  } else if (match.end != ReuseEnd::evicted) {
    match.end = differs                                      ? ReuseEnd::differs
                : match.pages == 0 && match.tail_tokens == 0 ? ReuseEnd::unseen
                                                             : ReuseEnd::incomplete;
  }
  return match;
}

int32_t PagePool::find_full(const PageKey& key, const PageKey& parent, std::span<const int32_t> tokens) const {
  for (int32_t page = by_key_[bucket(key)]; page != kNone; page = at(page).next_same_key) {
    const Page& p = at(page);
    if (p.key == key && p.parent == parent && std::ranges::equal(tokens_of(page), tokens)) return page;
  }
  return kNone;
}

void PagePool::promise(int32_t page, const PageKey& parent, std::span<const int32_t> tokens) {
  enlist(page, parent, tokens, State::promised);
}

void PagePool::list(int32_t page, const PageKey& parent, std::span<const int32_t> tokens) {
  enlist(page, parent, tokens, State::listed);
}

void PagePool::enlist(int32_t page, const PageKey& parent, std::span<const int32_t> tokens, State state) {
  INFERNO_CHECK(at(page).references > 0 && !tokens.empty() && tokens.size() <= static_cast<size_t>(page_size_));
  Page& p = at(page);
  if (p.state == State::promised && state == State::listed && p.parent == parent &&
      std::ranges::equal(tokens_of(page), tokens)) {  // a promise that is kept
    p.state = State::listed;
    ++version_;
    return;
  }
  if (p.state != State::unlisted) {
    if (p.parent == parent && std::ranges::equal(tokens_of(page), tokens)) return;
    unlist(page);
  }
  const bool full = tokens.size() == static_cast<size_t>(page_size_);
  const PageKey key = full ? page_key(parent, tokens) : PageKey{};
  if (full && find_full(key, parent, tokens) != kNone) return;
  p.state = state;
  p.parent = parent;
  p.key = key;
  p.tokens = static_cast<int32_t>(tokens.size());
  std::ranges::copy(tokens, token_memory_.begin() + int64_t{page} * page_size_);
  p.next_sibling = std::exchange(by_parent_[bucket(parent)], page);
  if (p.next_sibling != kNone) at(p.next_sibling).previous_sibling = page;
  p.previous_sibling = kNone;
  if (full) p.next_same_key = std::exchange(by_key_[bucket(key)], page);
  ++version_;
}

void PagePool::unlist(int32_t page) {
  Page& p = at(page);
  (p.previous_sibling == kNone ? by_parent_[bucket(p.parent)] : at(p.previous_sibling).next_sibling) = p.next_sibling;
  if (p.next_sibling != kNone) at(p.next_sibling).previous_sibling = p.previous_sibling;
  p.next_sibling = p.previous_sibling = kNone;
  if (p.tokens == page_size_) {
    int32_t* link = &by_key_[bucket(p.key)];
    while (*link != page) link = &at(*link).next_same_key;
    *link = std::exchange(p.next_same_key, kNone);
  }
  p.state = State::unlisted;
  p.tokens = 0;
  ++version_;
}

void PagePool::remember_evicted(int32_t page) {
  if (at(page).tokens == page_size_) evicted_[bucket(at(page).key)] = at(page).key;
}

void PagePool::push_newest(int32_t page) {
  Page& p = at(page);
  p.older = std::exchange(newest_, page);
  p.newer = kNone;
  (p.older == kNone ? oldest_ : at(p.older).newer) = page;
  p.evicts = true;
  ++cached_count_;
}

void PagePool::unlink(int32_t page) {
  Page& p = at(page);
  (p.older == kNone ? oldest_ : at(p.older).newer) = p.newer;
  (p.newer == kNone ? newest_ : at(p.newer).older) = p.older;
  p.older = p.newer = kNone;
  p.evicts = false;
  --cached_count_;
}

std::vector<PagePool::Listed> PagePool::listed() const {
  std::vector<Listed> all;
  const auto add = [&](int32_t page) {
    const Page& p = at(page);
    if (p.state == State::listed && p.tokens == page_size_) all.push_back({page, p.parent, p.key});
  };
  for (int32_t page = oldest_; page != kNone; page = at(page).newer) add(page);
  for (int32_t page = 0; page < pages(); ++page) {
    if (at(page).references > 0) add(page);
  }
  return all;
}

void PagePool::clear() {
  while (oldest_ != kNone) {
    const int32_t page = oldest_;
    unlink(page);
    unlist(page);
    free_.push_back(page);
  }
}

bool PagePool::consistent() const {
  std::vector<int> places(pages_.size(), 0);  // free or cached: each page without references once
  for (const int32_t page : free_) ++places[static_cast<size_t>(page)];
  int32_t cached = 0;
  for (int32_t page = oldest_, before = kNone; page != kNone; before = page, page = at(page).newer) {
    ++places[static_cast<size_t>(page)];
    ++cached;
    if (at(page).older != before || !at(page).evicts || at(page).state != State::listed) return false;
  }
  if (cached != cached_count_) return false;
  std::vector<int> listed(pages_.size(), 0);
  for (const int32_t first : by_parent_) {
    for (int32_t page = first; page != kNone; page = at(page).next_sibling) ++listed[static_cast<size_t>(page)];
  }
  std::vector<int> keyed(pages_.size(), 0);
  for (const int32_t first : by_key_) {
    for (int32_t page = first; page != kNone; page = at(page).next_same_key) ++keyed[static_cast<size_t>(page)];
  }
  for (size_t i = 0; i < pages_.size(); ++i) {
    const Page& p = pages_[i];
    if (p.references < 0 || places[i] != (p.references == 0 ? 1 : 0)) return false;
    if (listed[i] != (p.state == State::unlisted ? 0 : 1)) return false;
    if (keyed[i] != (p.state != State::unlisted && p.tokens == page_size_ ? 1 : 0)) return false;
  }
  return true;
}

}  // namespace inferno
