#include "kv/state_slots.h"

#include <gtest/gtest.h>

#include "backend/factory.h"

namespace inferno {
namespace {

TEST(StateSlots, ASlotBeginsWithZerosCopiesAllLayersAndComesBack) {
  const auto backend = create_backend("scalar");
  StateSlots slots(*backend, {.layer_floats = {4, 0, 2}, .slots = 2});
  EXPECT_EQ(StateSlots::slot_bytes({.layer_floats = {4, 0, 2}}), 24U);
  const int32_t a = slots.allocate();
  const int32_t b = slots.allocate();
  EXPECT_EQ(slots.allocate(), -1);
  EXPECT_EQ(slots.state(1, a), nullptr);
  slots.state(0, a)[3] = 5;
  slots.state(2, a)[1] = 7;
  EXPECT_EQ(slots.state(0, b)[3], 0);
  slots.copy(a, b);
  EXPECT_EQ(slots.state(0, b)[3], 5);
  EXPECT_EQ(slots.state(2, b)[1], 7);
  slots.release(a);
  EXPECT_EQ(slots.allocate(), a);
  EXPECT_EQ(slots.state(0, a)[3], 0) << "a slot given out again must not show the last sequence's state";
}

}  // namespace
}  // namespace inferno
