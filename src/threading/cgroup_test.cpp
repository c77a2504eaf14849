#include "threading/cgroup.h"

#include <gtest/gtest.h>

#include "support/other_machine.h"

namespace inferno {
namespace {

class Cgroup : public testing::OtherMachine {
 protected:
  [[nodiscard]] std::optional<double> quota() const { return cgroup_cpu_quota(root()); }
};

TEST_F(Cgroup, NothingThereMeansNoLimit) {
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(Cgroup, Version2ReadsCpuMax) {
  mount_v2();
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 2.5);
}

TEST_F(Cgroup, Version2MaxMeansNoLimit) {
  mount_v2();
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(Cgroup, TheTightestParentCounts) {
  mount_v2();
  write("/proc/self/cgroup", "0::/slice/pod/app\n");
  write("/sys/fs/cgroup/slice/cpu.max", "800000 100000\n");
  write("/sys/fs/cgroup/slice/pod/cpu.max", "150000 50000\n");
  write("/sys/fs/cgroup/slice/pod/app/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 3.0);
}

TEST_F(Cgroup, InAContainerTheMountShowsOnlyItsOwnPart) {
  mount_v2("/docker/1234");
  write("/proc/self/cgroup", "0::/docker/1234/inner\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/inner/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 4.0);
}

TEST_F(Cgroup, Version1ReadsQuotaAndPeriodOfTheCpuController) {
  write("/proc/self/mountinfo",
        "31 22 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
        "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n");
  write("/proc/self/cgroup", "5:memory:/app\n4:cpu,cpuacct:/app\n1:name=systemd:/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 0.5);
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(Cgroup, NonsenseMeansNoLimit) {
  mount_v2();
  write("/proc/self/cgroup", "garbage\n0::/app\n::::\n");
  for (const char* text : {"", "\n", "lots of it\n", "100000 0\n", "-5 100000\n", "0 100000\n", "100000\n",
                           "99999999999999999999 100000\n"}) {
    write("/sys/fs/cgroup/app/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace inferno
