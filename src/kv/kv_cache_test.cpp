#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "backend/factory.h"

namespace inferno {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;

class KvCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = create_backend("scalar");
  KvCache cache_{*backend_, {.layers = {{2, 8}, {1, 16}}, .max_positions = 200, .pages = 12}};
};

TEST_F(KvCacheTest, ASequenceAloneHasTheIdentityBlockTable) {
  KvSequence sequence(cache_);
  ASSERT_TRUE(sequence.resize(200));
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(sequence.pages()[static_cast<size_t>(i)], i);
}

TEST_F(KvCacheTest, SequencesNeverShareAPageUnaskedAndAllPagesComeBack) {
  {
    std::vector<std::unique_ptr<KvSequence>> sequences;
    for (int32_t s = 0; s < 3; ++s) sequences.push_back(std::make_unique<KvSequence>(cache_));
    for (int32_t length = 50; length <= 200; length += 50) {
      for (const auto& sequence : sequences) ASSERT_TRUE(sequence->resize(length));
    }
    std::set<int32_t> seen;
    for (const auto& sequence : sequences) {
      for (const int32_t page : sequence->pages()) EXPECT_TRUE(seen.insert(page).second);
    }
    EXPECT_EQ(cache_.pool().available(), 0);
  }
  EXPECT_EQ(cache_.pool().available(), 12);
  EXPECT_TRUE(cache_.pool().consistent());
}

TEST_F(KvCacheTest, TooLongOrTooManyIsRefusedAndChangesNothing) {
  KvSequence a(cache_);
  ASSERT_TRUE(a.resize(100));
  EXPECT_FALSE(a.resize(201));
  EXPECT_EQ(a.capacity(), 2 * kPage);
  KvSequence b(cache_);
  KvSequence c(cache_);
  KvSequence d(cache_);
  ASSERT_TRUE(b.resize(200));
  ASSERT_TRUE(c.resize(200));
  EXPECT_FALSE(d.resize(129));
  EXPECT_EQ(d.capacity(), 0);
  EXPECT_EQ(cache_.pool().available(), 2);
}

TEST_F(KvCacheTest, LayersHaveTheirOwnShapesAndTheBudgetCountsAllOfThem) {
  EXPECT_EQ(cache_.layer(0).page_bytes(), kPage * 2 * 8 * 4);
  EXPECT_EQ(cache_.layer(1).page_bytes(), kPage * 1 * 16 * 4);
  EXPECT_EQ(KvCache::page_bytes(cache_.config()), 2U * kPage * (2 * 8 + 16) * 4);
  EXPECT_EQ(cache_.bytes(), 12 * KvCache::page_bytes(cache_.config()));
}

TEST_F(KvCacheTest, ACopiedPageHasTheKeysAndValuesOfEveryLayer) {
  for (int32_t layer = 0; layer < 2; ++layer) {
    const KvLayerView view = cache_.layer(layer);
    for (void* base : {view.k, view.v}) {
      auto* page = static_cast<float*>(base) + 3 * view.page_bytes() / 4;
      std::iota(page, page + view.page_bytes() / 4, base == view.k ? 1.0F : 1000.0F);
    }
  }
  cache_.copy_page(3, 7);
  for (int32_t layer = 0; layer < 2; ++layer) {
    const KvLayerView view = cache_.layer(layer);
    for (void* base : {view.k, view.v}) {
      const auto* from = static_cast<const float*>(base) + 3 * view.page_bytes() / 4;
      const auto* to = static_cast<const float*>(base) + 7 * view.page_bytes() / 4;
      EXPECT_TRUE(std::equal(from, from + view.page_bytes() / 4, to));
    }
  }
}

}  // namespace
}  // namespace inferno
