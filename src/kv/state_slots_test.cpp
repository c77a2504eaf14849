#include "kv/state_slots.h"

#include <gtest/gtest.h>

#include "backend/factory.h"

namespace inferno {
namespace {

TEST(StateSlots, ASlotCopiesAllLayersAndComesBack) {
  const auto backend = create_backend("scalar");
  StateSlots slots(*backend, {.layer_floats = {{4, 3}, {}, {0, 2}}, .slots = 2});
  EXPECT_EQ(StateSlots::slot_bytes({.layer_floats = {{4, 3}, {}, {0, 2}}}), 36U);
  const int32_t a = slots.allocate();
  const int32_t b = slots.allocate();
  EXPECT_EQ(slots.allocate(), -1);
  EXPECT_TRUE(slots.states(1, 0).empty());
  EXPECT_TRUE(slots.states(2, 0).empty());
  const auto at = [&](int32_t layer, int32_t part, int32_t slot) {
    return slots.states(layer, part).row_range(slot, 1).f32();
  };
  at(0, 0, a)[3] = 5;
  at(0, 1, a)[2] = 6;
  at(2, 1, a)[1] = 7;
  at(0, 0, b)[3] = at(0, 1, b)[2] = at(2, 1, b)[1] = 0;
  slots.copy(a, b);
  EXPECT_EQ(at(0, 0, b)[3], 5);
  EXPECT_EQ(at(0, 1, b)[2], 6);
  EXPECT_EQ(at(2, 1, b)[1], 7);
  slots.release(a);
  EXPECT_EQ(slots.available(), 1);
  EXPECT_EQ(slots.allocate(), a);
}

}  // namespace
}  // namespace inferno
