#include <gtest/gtest.h>

#include "threading/protocol_model.h"

namespace inferno::model {
namespace {

TEST(ProtocolModelSlow, BarrierHoldsInEveryScheduleOfTwoThreadsAndThreePhases) {
  EXPECT_EQ((check<BarrierModel<2, 3>>(rl::sched_full).result), "SUCCESS");
}

TEST(ProtocolModelSlow, WholePoolHoldsInAMillionRandomSchedulesOfFourThreads) {
  EXPECT_EQ((check<PoolModel<4, 3, 2>>(rl::sched_random, 1'000'000).result), "SUCCESS");
}

TEST(ProtocolModelSlow, PauseAndResumeLoseNothingInAMillionRandomSchedules) {
  EXPECT_EQ((check<PoolModel<3, 2, 1, true>>(rl::sched_random, 1'000'000).result), "SUCCESS");
}

}  // namespace
}  // namespace inferno::model
