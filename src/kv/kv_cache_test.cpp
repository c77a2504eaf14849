#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/factory.h"

namespace inferno {
namespace {

class KvCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = create_backend("scalar");
  KvCache cache_{*backend_, {.layers = 2, .kv_heads = 2, .head_dim = 8, .max_positions = 200, .max_sequences = 3}};
};

TEST_F(KvCacheTest, OneSequenceHasTheIdentityBlockTable) {
  ASSERT_TRUE(cache_.resize(0, 200));
  for (int32_t p = 0; p < 200; ++p) EXPECT_EQ(cache_.slot(0, p), p);
}

TEST_F(KvCacheTest, SequencesNeverShareAPageAndAllPagesComeBack) {
  const int32_t all = cache_.free_pages();
  for (int32_t length = 50; length <= 200; length += 50) {
    for (int32_t s = 0; s < 3; ++s) ASSERT_TRUE(cache_.resize(s, length));
  }
  std::set<int32_t> seen;
  for (int32_t s = 0; s < 3; ++s) {
    for (const int32_t page : cache_.pages(s)) EXPECT_TRUE(seen.insert(page).second);
  }
  for (int32_t s = 0; s < 3; ++s) ASSERT_TRUE(cache_.resize(s, 0));
  EXPECT_EQ(cache_.free_pages(), all);
}

TEST_F(KvCacheTest, TooLongIsRefusedAndChangesNothing) {
  ASSERT_TRUE(cache_.resize(1, 100));
  EXPECT_FALSE(cache_.resize(1, 201));
  EXPECT_EQ(cache_.length(1), 100);
}

}  // namespace
}  // namespace inferno
