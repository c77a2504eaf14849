#include "api/split_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace inferno {
namespace {

TEST(SplitPlan, ANetworkHasANameOrARateAndALatency) {
  EXPECT_EQ(find_network("").name, "10GbE");
  const Network named = find_network("1GbE");
  const Network measured = find_network("0.94,45.5");
  EXPECT_EQ(measured.gbit_per_s, named.gbit_per_s);
  EXPECT_EQ(measured.latency_us, 45.5);
  for (const char* wrong : {"1", "1,", ",1", "0,1", "1,-1", "1,nan", "1,2,3", "inf,1", "2GbE"}) {
    EXPECT_THROW((void)find_network(wrong), Error) << wrong;
  }
}

// Long sums of many ranks go in segments: out as they are sent, back as f32.
TEST(SplitPlan, RoundedSumsSendLess) {
  const Network network = find_network("10GbE");
  constexpr double kMany = 1 << 20;
  EXPECT_EQ(sum_cost(network, 8, kMany, 4).sent_bytes, 7 * kMany);
  EXPECT_EQ(sum_cost(network, 8, kMany, 2).sent_bytes, 7 * kMany * 6 / 8);
  EXPECT_EQ(sum_cost(network, 8, 1000, 2).sent_bytes, 7 * 1000 * 2);
  EXPECT_LT(sum_cost(network, 8, kMany, 2).us, sum_cost(network, 8, kMany, 4).us);
}

}  // namespace
}  // namespace inferno
