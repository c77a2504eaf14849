#include <gtest/gtest.h>

#include <iostream>

#include "threading/protocol_model.h"

namespace inferno::model {
namespace {

TEST(ProtocolModelSlow, BarrierHoldsInEveryScheduleOfTwoThreadsAndThreePhases) {
  const Verdict verdict = check_alike_threads<BarrierModel<2, 3>>();
  EXPECT_EQ(verdict.result, "SUCCESS");
  std::cout << "  " << verdict.schedules << " schedules, and the same number with the threads exchanged\n";
}

TEST(ProtocolModelSlow, WholePoolHoldsInAMillionRandomSchedulesOfFourThreads) {
  EXPECT_EQ((check<PoolModel<4, 3, 2>>(rl::sched_random, 1'000'000).result), "SUCCESS");
}

TEST(ProtocolModelSlow, PauseAndResumeLoseNothingInAMillionRandomSchedules) {
  EXPECT_EQ((check<PoolModel<3, 2, 1, true>>(rl::sched_random, 1'000'000).result), "SUCCESS");
}

}  // namespace
}  // namespace inferno::model
