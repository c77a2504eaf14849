#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace inferno {
namespace {

constexpr int32_t kPoolPage = 4;
using Tokens = std::vector<int32_t>;

const PageKey kRoot = root_key("");

// Lists the full pages of a text and its last, partial one; returns them, held once each.
std::vector<int32_t> add_text(PagePool& pool, const Tokens& text, const PageKey& root = kRoot) {
  std::vector<int32_t> pages;
  PageKey parent = root;
  for (size_t begin = 0; begin < text.size(); begin += kPoolPage) {
    const auto own = std::span(text).subspan(begin, std::min<size_t>(kPoolPage, text.size() - begin));
    pages.push_back(pool.allocate());
    pool.list(pages.back(), parent, own);
    parent = page_key(parent, own);
  }
  return pages;
}
void release(PagePool& pool, const std::vector<int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) pool.release(*page);
}
PagePool::Match find(const PagePool& pool, const Tokens& text, std::vector<int32_t>& found,
                     const PageKey& root = kRoot) {
  found.assign(text.size() / kPoolPage + 1, -1);
  const PagePool::Match match = pool.find(root, text, found);
  found.resize(static_cast<size_t>(match.pages));
  return match;
}

TEST(PagePool, FullPagesAreFoundAgainAfterTheirSequenceEnded) {
  PagePool pool(8, kPoolPage);
  const std::vector<int32_t> pages = add_text(pool, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  release(pool, pages);
  EXPECT_EQ(pool.available(), 8);
  std::vector<int32_t> found;
  const PagePool::Match match = find(pool, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, found);
  EXPECT_EQ(found, (std::vector<int32_t>{pages[0], pages[1]}));
  EXPECT_EQ(match.tail, pages[2]);
  EXPECT_EQ(match.tail_tokens, 1);
  EXPECT_EQ(match.end, ReuseEnd::incomplete);
}

TEST(PagePool, AMatchSaysWhyItEnds) {
  PagePool pool(8, kPoolPage);
  release(pool, add_text(pool, {1, 2, 3, 4, 5, 6, 7, 8}));
  std::vector<int32_t> found;
  EXPECT_EQ(find(pool, {9, 9, 9, 9}, found).end, ReuseEnd::differs);
  EXPECT_EQ(find(pool, {1, 2, 3, 4, 5, 6, 0, 8}, found).end, ReuseEnd::differs);
  EXPECT_EQ(find(pool, {1, 2, 3, 4, 5, 6}, found).end, ReuseEnd::complete);
  EXPECT_EQ(find(pool, {1, 2, 3, 4, 5, 6, 7, 8, 9}, found).end, ReuseEnd::incomplete);
  EXPECT_EQ(find(pool, {1, 2, 3, 4}, found, root_key("another")).end, ReuseEnd::unseen);
  std::vector<int32_t> all;
  for (int i = 0; i < 8; ++i) all.push_back(pool.allocate());
  EXPECT_EQ(find(pool, {1, 2, 3, 4, 5, 6, 7, 8, 9}, found).end, ReuseEnd::evicted);
  EXPECT_EQ(pool.allocate(), -1);
  release(pool, all);
  EXPECT_TRUE(pool.consistent());
}

TEST(PagePool, TheLeastRecentlyUsedPageIsEvictedAndHeldOnesNever) {
  PagePool pool(3, kPoolPage);
  const std::vector<int32_t> a = add_text(pool, {1, 1, 1, 1});
  const std::vector<int32_t> b = add_text(pool, {2, 2, 2, 2});
  const std::vector<int32_t> held = add_text(pool, {3, 3, 3, 3});
  release(pool, a);
  release(pool, b);
  pool.retain(a[0]);  // used again: b is now the oldest
  pool.release(a[0]);
  EXPECT_EQ(pool.allocate(), b[0]);
  EXPECT_EQ(pool.allocate(), a[0]);
  EXPECT_EQ(pool.allocate(), -1);
  std::vector<int32_t> found;
  EXPECT_EQ(find(pool, {3, 3, 3, 3}, found).pages, 1);
}

TEST(PagePool, APromisedPageIsWaitedForAndFreeWhenItsOwnerLeaves) {
  PagePool pool(4, kPoolPage);
  const Tokens text = {1, 2, 3, 4};
  const int32_t page = pool.allocate();
  pool.promise(page, kRoot, text);
  std::vector<int32_t> found;
  EXPECT_TRUE(find(pool, text, found).promised);
  EXPECT_TRUE(found.empty());
  const uint64_t before = pool.version();
  pool.list(page, kRoot, text);
  EXPECT_NE(pool.version(), before);
  EXPECT_FALSE(find(pool, text, found).promised);
  EXPECT_EQ(found.size(), 1U);
  const int32_t broken = pool.allocate();
  pool.promise(broken, kRoot, Tokens{5, 6, 7, 8});
  pool.release(broken);
  EXPECT_FALSE(find(pool, {5, 6, 7, 8}, found).promised);
  EXPECT_TRUE(pool.consistent());
}

TEST(PagePool, TheSameTokensAfterOtherTokensAreAnotherPage) {
  PagePool pool(8, kPoolPage);
  release(pool, add_text(pool, {1, 2, 3, 4, 7, 7, 7, 7}));
  std::vector<int32_t> found;
  EXPECT_EQ(find(pool, {4, 3, 2, 1, 7, 7, 7, 7}, found).pages, 0);
  EXPECT_EQ(find(pool, {7, 7, 7, 7}, found).pages, 0);
}

// 10,000 random operations beside a model that is too simple to be wrong: texts as vectors, pages as a map.
TEST(PagePool, TenThousandRandomOperationsLoseNoPageAndNeverFindAnotherText) {
  constexpr int32_t kPages = 24;
  PagePool pool(kPages, kPoolPage);
  std::mt19937 random(7);
  struct Held {
    Tokens text;
    std::vector<int32_t> pages;
  };
  std::vector<Held> held;
  std::map<int32_t, Tokens> content;  // page -> all tokens up to its end, as last written
  const auto references = [&](int32_t page) {
    int32_t count = 0;
    for (const Held& h : held) count += static_cast<int32_t>(std::ranges::count(h.pages, page));
    return count;
  };
  for (int step = 0; step < 10000; ++step) {
    if (held.empty() || random() % 2 == 0) {
      // A new sequence: what is cached of it is shared, the rest computed, if there are pages.
      Held h;
      h.text.resize(1 + random() % 24);
      for (int32_t& token : h.text) token = static_cast<int32_t>(random() % 2);
      std::vector<int32_t> found;
      const PagePool::Match match = find(pool, h.text, found);
      for (size_t i = 0; i < found.size(); ++i) {
        const Tokens expected(h.text.begin(), h.text.begin() + static_cast<ptrdiff_t>((i + 1) * kPoolPage));
        ASSERT_EQ(content[found[i]], expected);
      }
      if (match.tail >= 0) {
        const size_t end = found.size() * kPoolPage + static_cast<size_t>(match.tail_tokens);
        ASSERT_LE(end, content[match.tail].size());
        ASSERT_TRUE(
            std::equal(h.text.begin(), h.text.begin() + static_cast<ptrdiff_t>(end), content[match.tail].begin()));
      }
      for (const int32_t page : found) pool.retain(page);
      h.pages = found;
      PageKey parent = kRoot;
      bool full = true;
      for (size_t begin = 0; begin < h.text.size(); begin += kPoolPage) {
        const auto own = std::span(h.text).subspan(begin, std::min<size_t>(kPoolPage, h.text.size() - begin));
        if (begin / kPoolPage >= found.size()) {
          const int32_t page = pool.allocate();
          if (page < 0) {
            full = false;
            break;
          }
          ASSERT_EQ(references(page) + static_cast<int32_t>(std::ranges::count(h.pages, page)), 0)
              << "a held page was given out";
          h.pages.push_back(page);
          content[page] = Tokens(h.text.begin(), h.text.begin() + static_cast<ptrdiff_t>(begin + own.size()));
          pool.list(page, parent, own);
        }
        parent = page_key(parent, own);
      }
      if (full) {
        held.push_back(h);
      } else {
        release(pool, h.pages);
      }
    } else {
      const size_t victim = random() % held.size();
      release(pool, held[victim].pages);
      held.erase(held.begin() + static_cast<ptrdiff_t>(victim));
    }
    int32_t distinct = 0;
    for (int32_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(pool.references(page), references(page));
      distinct += references(page) > 0 ? 1 : 0;
    }
    ASSERT_EQ(pool.available(), kPages - distinct);
    ASSERT_TRUE(pool.consistent());
  }
  EXPECT_GT(pool.evictions(), 100);
}

}  // namespace
}  // namespace inferno
