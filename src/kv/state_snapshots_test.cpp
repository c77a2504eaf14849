#include "kv/state_snapshots.h"

#include <gtest/gtest.h>

#include "backend/factory.h"

namespace inferno {
namespace {

PageKey key_of(int32_t token) {
  return page_key(root_key(""), std::vector<int32_t>{token});
}

class Snapshots : public ::testing::Test {
 protected:
  void keep(int32_t token, const PageKey& replaced = {}) {
    slots_.states(0, 0).row_range(own_, 1).f32()[0] = static_cast<float>(token);
    snapshots_.keep(key_of(token), own_, replaced);
  }
  // The state kept for a token, or -1.
  [[nodiscard]] float find(int32_t token) {
    const int32_t slot = snapshots_.find(key_of(token));
    return slot < 0 ? -1 : slots_.states(0, 0).row_range(slot, 1).f32()[0];
  }
  std::unique_ptr<Backend> backend_ = create_backend("scalar");
  StateSlots slots_{*backend_, {.layer_floats = {{1, 0}}, .slots = 3}};
  StateSnapshots snapshots_{slots_, 2};
  int32_t own_ = slots_.allocate();
};

TEST_F(Snapshots, AreCopiesAndTheOneNotUsedForLongestGivesWay) {
  EXPECT_EQ(slots_.available(), 0);
  EXPECT_EQ(find(1), -1);
  keep(1);
  keep(2);
  EXPECT_EQ(find(1), 1);
  keep(3);
  EXPECT_EQ(find(2), -1) << "1 was used later";
  EXPECT_EQ(find(1), 1);
  EXPECT_EQ(find(3), 3);
}

TEST_F(Snapshots, ALaterOneOfTheSameSequenceTakesThePlaceOfTheEarlier) {
  keep(1);
  keep(2);
  keep(3, key_of(2));
  EXPECT_EQ(find(1), 1);
  EXPECT_EQ(find(2), -1);
  EXPECT_EQ(find(3), 3);
  keep(4, key_of(2));
  EXPECT_EQ(find(1), -1) << "what it would replace is gone: the oldest goes";
}

}  // namespace
}  // namespace inferno
