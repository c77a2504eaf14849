#include <gtest/gtest.h>

#include <iostream>

#include "threading/protocol_model.h"

namespace inferno::model {
namespace {

void expect_success(const Verdict& verdict) {
  EXPECT_EQ(verdict.result, "SUCCESS");
  std::cout << "  " << verdict.schedules << " schedules\n";
}

TEST(ProtocolModel, BarrierHoldsInEveryScheduleOfTwoThreadsAndTwoPhases) {
  expect_success(check<BarrierModel<2, 2>>(rl::sched_full));
}

TEST(ProtocolModel, ThreadsThatDoTheSameMakeHalfOfTheSchedulesEnough) {
  const Verdict all = check<BarrierModel<2, 1>>(rl::sched_full);
  const Verdict half = check_alike_threads<BarrierModel<2, 1>>();
  expect_success(half);
  EXPECT_EQ(all.schedules, 2 * half.schedules);
}

TEST(ProtocolModel, BarrierHoldsInSchedulesOfTwoThreadsAndThreePhasesWithFourInterruptions) {
  expect_success(check<BarrierModel<2, 3>>(rl::sched_bound, 0, 4));
}

TEST(ProtocolModel, HandoffHoldsInEverySchedule) {
  expect_success(check<HandoffModel<1>>(rl::sched_full));
}

TEST(ProtocolModel, WholePoolHoldsInSchedulesOfTwoThreadsWithTwoInterruptions) {
  expect_success(check<PoolModel<2, 3, 1>>(rl::sched_bound, 0, 2));
}

TEST(ProtocolModel, WholePoolHoldsInRandomSchedulesOfFourThreads) {
  expect_success(check<PoolModel<4, 3, 2>>(rl::sched_random, 5'000));
}

TEST(ProtocolModel, PauseAndResumeAtAnyMomentLoseNothing) {
  expect_success(check<PoolModel<3, 2, 1, true>>(rl::sched_random, 10'000));
}

// The checker must find planted bugs.

TEST(ProtocolModel, PlantedLostWakeUpIsFoundInTheBarrier) {
  using Platform = ModelPlatform<Plant::split_announcement>;
  EXPECT_EQ((check<BarrierModel<2, 1, Platform>>(rl::sched_full).result), "DEADLOCK");
}

TEST(ProtocolModel, PlantedLostWakeUpIsFoundInTheDispatch) {
  using Platform = ModelPlatform<Plant::split_announcement>;
  EXPECT_EQ((check<HandoffModel<1, Platform>>(rl::sched_full).result), "DEADLOCK");
}

TEST(ProtocolModel, PlantedMissingReleaseIsFoundAsADataRace) {
  using Platform = ModelPlatform<Plant::relaxed_only>;
  EXPECT_EQ((check<HandoffModel<1, Platform>>(rl::sched_full).result), "DATA RACE");
}

}  // namespace
}  // namespace inferno::model
