#include "serve/outbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>
#include <vector>

namespace inferno::serve {
namespace {

// An event loop that runs when it is told to.
struct Loop {
  std::deque<std::function<void()>> now;
  std::deque<std::function<void()>> later;

  Outbox outbox{[this](std::function<void()> work) { now.push_back(std::move(work)); },
                [this](std::function<void()> work) { later.push_back(std::move(work)); }};
  std::vector<int> delivered = {};

  void add(int i) {
    outbox.add([this, i] { delivered.push_back(i); });
  }
  static void run(std::deque<std::function<void()>>& queue) {
    const auto work = std::move(queue.front());
    queue.pop_front();
    work();
  }
};

TEST(Outbox, TheFirstIsDeliveredAtOnceAndTheNextTogetherLater) {
  Loop loop;
  loop.add(1);
  ASSERT_EQ(loop.now.size(), 1U);
  Loop::run(loop.now);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1}));
  loop.add(2);
  loop.add(3);
  EXPECT_TRUE(loop.now.empty()) << "the loop was woken although it will look";
  ASSERT_EQ(loop.later.size(), 1U);
  Loop::run(loop.later);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 2, 3}));
}

TEST(Outbox, WakesTheLoopAgainOnceNothingCameForAWhile) {
  Loop loop;
  loop.add(1);
  Loop::run(loop.now);
  Loop::run(loop.later);
  EXPECT_TRUE(loop.later.empty()) << "it looks for ever";
  loop.add(2);
  ASSERT_EQ(loop.now.size(), 1U);
  Loop::run(loop.now);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 2}));
}

TEST(Outbox, WhatSomebodyWaitsForDoesNotWaitForTheNextLook) {
  Loop loop;
  loop.add(1);
  Loop::run(loop.now);
  loop.add(2);
  loop.outbox.add_now([&] { loop.delivered.push_back(3); });
  ASSERT_EQ(loop.now.size(), 1U) << "the loop was not woken";
  Loop::run(loop.now);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 3}));
  Loop::run(loop.later);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 3, 2}));
}

TEST(Outbox, WhatFollowsTheFirstOfAStreamNeedNotWakeTheLoop) {
  Loop loop;
  loop.outbox.add_now([&] { loop.delivered.push_back(1); });
  ASSERT_EQ(loop.now.size(), 1U);
  Loop::run(loop.now);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1}));
  loop.add(2);
  EXPECT_TRUE(loop.now.empty());
  Loop::run(loop.later);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 2}));
}

TEST(Outbox, ADeliveryThatFailsLosesNoOther) {
  Loop loop;
  loop.add(1);
  loop.outbox.add([] { throw std::runtime_error("no memory"); });
  loop.add(2);
  Loop::run(loop.now);
  EXPECT_EQ(loop.delivered, (std::vector<int>{1, 2}));
}

TEST(Outbox, DeliversWithoutATimer) {
  std::deque<std::function<void()>> now;
  std::vector<int> delivered;
  Outbox* self = nullptr;
  Outbox outbox{[&](std::function<void()> work) { now.push_back(std::move(work)); },
                [](const std::function<void()>&) { throw std::bad_alloc(); }};
  self = &outbox;
  outbox.add([&] {
    delivered.push_back(1);
    self->add([&] { delivered.push_back(2); });
  });
  Loop::run(now);
  EXPECT_EQ(delivered, (std::vector<int>{1, 2}));
  outbox.add([&] { delivered.push_back(3); });
  ASSERT_EQ(now.size(), 1U);
  Loop::run(now);
  EXPECT_EQ(delivered, (std::vector<int>{1, 2, 3}));
}

}  // namespace
}  // namespace inferno::serve
