#include "backend/device/step_recorder.h"

#include <gtest/gtest.h>

#include <vector>

namespace inferno::device {
namespace {

RmsNormArgs norm(float eps) {
  return {.eps = eps};
}

std::vector<float> eps_of(const std::vector<OpRecord>& ops) {
  std::vector<float> found;
  for (const OpRecord& op : ops) found.push_back(op.args<RmsNormArgs>().eps);
  return found;
}

// A recorder of a step like an earlier one with eps of 1, 2, 3.
class StepRecorderTest : public testing::Test {
 protected:
  StepRecorderTest() {
    for (const float eps : {1.0F, 2.0F, 3.0F}) earlier_.emplace_back().assign(norm(eps));
    step_.begin(&earlier_);
  }
  void record(std::initializer_list<float> all) {
    for (const float eps : all) step_.record(norm(eps));
  }

  std::vector<OpRecord> earlier_;
  StepRecorder step_{8};
};

TEST_F(StepRecorderTest, TheSameOpsRepeatTheEarlierStep) {
  EXPECT_TRUE(step_.empty());
  EXPECT_FALSE(step_.repeats());
  record({1, 2, 3});
  EXPECT_FALSE(step_.empty());
  EXPECT_TRUE(step_.repeats());
  EXPECT_EQ(eps_of(step_.ops()), (std::vector<float>{1, 2, 3}));
}

TEST_F(StepRecorderTest, FewerOpsDoNot) {
  record({1, 2});
  EXPECT_FALSE(step_.empty());
  EXPECT_FALSE(step_.repeats());
  EXPECT_EQ(eps_of(step_.ops()), (std::vector<float>{1, 2}));
}

TEST_F(StepRecorderTest, MoreOpsDoNot) {
  record({1, 2, 3, 4});
  EXPECT_FALSE(step_.repeats());
  EXPECT_EQ(eps_of(step_.ops()), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(StepRecorderTest, OpsThatDifferAreKeptWithThoseBefore) {
  record({1, 5, 3});
  EXPECT_FALSE(step_.repeats());
  EXPECT_EQ(eps_of(step_.ops()), (std::vector<float>{1, 5, 3}));
}

TEST_F(StepRecorderTest, AnotherOpDiffersWhateverItsArgs) {
  step_.record(LinearArgs{});
  EXPECT_FALSE(step_.repeats());
  ASSERT_EQ(step_.ops().size(), 1U);
  EXPECT_EQ(step_.ops()[0].op(), OpId::linear);
}

TEST_F(StepRecorderTest, WithoutAnEarlierStepNothingRepeats) {
  step_.begin();
  EXPECT_TRUE(step_.empty());
  record({1, 2, 3});
  EXPECT_FALSE(step_.repeats());
  EXPECT_EQ(eps_of(step_.ops()), (std::vector<float>{1, 2, 3}));
  step_.begin();
  EXPECT_TRUE(step_.empty());
}

TEST(SameOp, AddressesShapesAndValuesCount) {
  float memory[8] = {};
  const auto op = [](float* at, int64_t cols, float eps) {
    OpRecord record;
    record.assign(RmsNormArgs{.x = {.data = at, .shape = Shape(1, cols)}, .eps = eps});
    return record;
  };
  const OpRecord first = op(memory, 4, 1);
  EXPECT_TRUE(same_op(first, op(memory, 4, 1)));
  EXPECT_FALSE(same_op(first, op(memory + 1, 4, 1)));
  EXPECT_FALSE(same_op(first, op(memory, 2, 1)));
  EXPECT_FALSE(same_op(first, op(memory, 4, 2)));
}

}  // namespace
}  // namespace inferno::device
