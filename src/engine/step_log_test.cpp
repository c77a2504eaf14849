#include "engine/step_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace inferno {
namespace {

TEST(StepLog, KeepsTheLastStepsOldestFirst) {
  StepLog log;
  EXPECT_TRUE(log.last(10).empty());
  for (int64_t i = 0; i < 300; ++i) log.add({.number = i});
  const std::vector<StepRecord> last = log.last(10);
  ASSERT_EQ(last.size(), 10U);
  EXPECT_EQ(last.front().number, 290);
  EXPECT_EQ(last.back().number, 299);
  EXPECT_EQ(log.last(10'000).size(), StepLog::kSteps);
}

TEST(StepLog, ARecordIsNeverReadHalfWritten) {
  StepLog log;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int64_t i = 0; i < 100'000; ++i) {
      StepRecord record{.number = i, .sequences = static_cast<int32_t>(i)};
      for (auto& member : record.member) member.tag = static_cast<uint64_t>(i);
      log.add(record);
    }
    done = true;
  });
  while (!done) {
    for (const StepRecord& record : log.last(StepLog::kSteps)) {
      EXPECT_EQ(record.number, record.sequences);
      for (const auto& member : record.member) EXPECT_EQ(member.tag, static_cast<uint64_t>(record.number));
    }
  }
  writer.join();
}

}  // namespace
}  // namespace inferno
