// Who owns which page of the cache, and which pages hold which tokens.
//
// A page is a number; its memory is KvCache's business. Pages are reference counted: a sequence holds one reference to
// each of its pages, and sequences that begin with the same tokens hold the same pages. A page whose tokens are known
// is *listed*: it is found again by its key, a hash over all tokens up to its end and a salt, and its own tokens are
// compared, so that a hash alone never decides. A listed page outlives its last reference; it is evicted, least
// recently used first, when a page is needed and none is free.
//
// A full page is shared as it is. Of a page that is not full, or that matches only in part, the positions that match
// are copied into a page of the new sequence (copy on write). Pages being computed are listed from the start, as
// *promised*: whoever looks them up learns that waiting for them is cheaper than computing them again.
//
// Nothing here allocates after construction but listed(). Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inferno/types.h"

namespace inferno {

// Identifies everything up to the end of a page: 128 bits, so that nobody finds two texts with one key.
struct PageKey {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const PageKey&, const PageKey&) = default;
};

// The key before the first page. Different salts share nothing.
[[nodiscard]] PageKey root_key(std::string_view salt);
// The key of a full page after `parent`.
[[nodiscard]] PageKey page_key(const PageKey& parent, std::span<const int32_t> tokens);

class PagePool {
 public:
  PagePool(int32_t pages, int32_t page_size);

  [[nodiscard]] int32_t pages() const { return static_cast<int32_t>(pages_.size()); }
  [[nodiscard]] int32_t page_size() const { return page_size_; }
  // Pages that allocate() can still give out: free ones, and listed ones that nobody holds.
  [[nodiscard]] int32_t available() const { return static_cast<int32_t>(free_.size()) + cached_count_; }
  [[nodiscard]] int32_t cached() const { return cached_count_; }
  [[nodiscard]] int32_t unused() const { return static_cast<int32_t>(free_.size()); }
  [[nodiscard]] int32_t references(int32_t page) const { return at(page).references; }
  [[nodiscard]] int64_t evictions() const { return evictions_; }
  // Changes whenever a look-up may have another result than before.
  [[nodiscard]] uint64_t version() const { return version_; }

  // A page with one reference, or -1 when none is available.
  [[nodiscard]] int32_t allocate();
  void retain(int32_t page);
  // Without references a listed page stays cached, as the most recently used; a promised one is free.
  void release(int32_t page);

  // What is cached of a text. Only full pages are in `pages`; no reference is taken.
  struct Match {
    int32_t pages = 0;        // full pages, written to the caller's span
    int32_t tail = -1;        // a page to copy `tail_tokens` positions from
    int32_t tail_tokens = 0;  // more than 0 when there is a tail
    bool promised = false;    // the page after those is being computed
    PageKey key;              // of what follows the full pages
    ReuseEnd end = ReuseEnd::unseen;
  };
  // Looks up tokens after `root`. `found` has room for all full pages of them.
  [[nodiscard]] Match find(const PageKey& root, std::span<const int32_t> tokens, std::span<int32_t> found) const;

  // Lists a page: these tokens, at most a page of them, after `parent`. A page is listed once; again with more tokens
  // as it fills. Where another page has the same tokens already, this one is not listed.
  void promise(int32_t page, const PageKey& parent, std::span<const int32_t> tokens);
  void list(int32_t page, const PageKey& parent, std::span<const int32_t> tokens);
  // Full pages that are listed, held ones last, the others least recently used first.
  struct Listed {
    int32_t page;
    PageKey parent, key;
  };
  [[nodiscard]] std::vector<Listed> listed() const;
  [[nodiscard]] bool is_listed(int32_t page, const PageKey& key) const {
    return at(page).state == State::listed && at(page).tokens == page_size_ && at(page).key == key;
  }
  // Of a listed page.
  [[nodiscard]] std::span<const int32_t> tokens_of(int32_t page) const;
  // Forgets all that nobody holds.
  void clear();

  // Counts pages again from scratch; false when a count, a list or a table is wrong. For tests.
  [[nodiscard]] bool consistent() const;

 private:
  static constexpr int32_t kNone = -1;

  enum class State : uint8_t { unlisted, promised, listed };
  struct Page {
    int32_t references = 0;
    State state = State::unlisted;
    bool evicts = false;  // in the list of cached pages
    int32_t tokens = 0;   // listed, at most page_size
    PageKey parent;
    PageKey key;                    // of full pages
    int32_t next_same_key = kNone;  // chain of a bucket of by_key_: full pages
    // Chain of a bucket of by_parent_; both ways, because a root has many children.
    int32_t next_sibling = kNone, previous_sibling = kNone;
    int32_t older = kNone, newer = kNone;  // cached pages by last use
  };

  [[nodiscard]] Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  [[nodiscard]] const Page& at(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  [[nodiscard]] size_t bucket(const PageKey& key) const { return key.low & (by_key_.size() - 1); }
  [[nodiscard]] int32_t find_full(const PageKey& key, const PageKey& parent, std::span<const int32_t> tokens) const;
  void enlist(int32_t page, const PageKey& parent, std::span<const int32_t> tokens, State state);
  void unlist(int32_t page);
  void push_newest(int32_t page);
  void unlink(int32_t page);
  void remember_evicted(int32_t page);

  int32_t page_size_;
  std::vector<Page> pages_;
  std::vector<int32_t> token_memory_;  // [pages, page_size]
  std::vector<int32_t> free_;          // the next page to give out is last
  std::vector<int32_t> by_key_;        // [power of two] first full page of each bucket
  std::vector<int32_t> by_parent_;     // [power of two] first page of each bucket
  std::vector<PageKey> evicted_;       // [power of two] keys of full pages that gave way, latest of each bucket
  int32_t oldest_ = kNone, newest_ = kNone;
  int32_t cached_count_ = 0;
  int64_t evictions_ = 0;
  uint64_t version_ = 0;
};

}  // namespace inferno
