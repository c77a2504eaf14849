#include "base/memory.h"

#include <gtest/gtest.h>

#include "support/other_machine.h"

namespace inferno {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Memory : public testing::OtherMachine {
 protected:
  void SetUp() override {
    OtherMachine::SetUp();
    write("/proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\nSwapFree:  2048 kB\n");
  }
  [[nodiscard]] std::optional<uint64_t> available() const { return available_memory(root()); }
};

TEST_F(Memory, WithoutGroupsItIsWhatTheSystemSays) {
  EXPECT_EQ(available(), 8192 * kMiB);
  EXPECT_EQ(free_swap(root()), 2 * kMiB);
  EXPECT_EQ(available_memory(root() + "/nowhere"), std::nullopt);
  EXPECT_EQ(free_swap(root() + "/nowhere"), 0U);
}

TEST_F(Memory, Version2CountsTheTightestGroupWithoutDroppableFilePages) {
  mount_v2();
  write("/proc/self/cgroup", "0::/pod/app\n");
  write("/sys/fs/cgroup/pod/memory.max", std::to_string(1000 * kMiB));
  write("/sys/fs/cgroup/pod/memory.current", std::to_string(700 * kMiB));
  write("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file " + std::to_string(300 * kMiB) + "\nslab 2\n");
  write("/sys/fs/cgroup/pod/app/memory.max", "max\n");
  write("/sys/fs/cgroup/pod/app/memory.current", "5\n");
  EXPECT_EQ(available(), 600 * kMiB);
  write("/sys/fs/cgroup/pod/app/memory.max", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/pod/app/memory.current", std::to_string(130 * kMiB));
  EXPECT_EQ(available(), 0U);
}

TEST_F(Memory, Version1CountsTheMemoryController) {
  write("/proc/self/mountinfo",
        "31 22 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
        "32 22 0:28 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu\n");
  write("/proc/self/cgroup", "5:memory:/app\n4:cpu:/app\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "123456\n");
  EXPECT_EQ(available(), 8192 * kMiB);
  write("/sys/fs/cgroup/memory/app/memory.limit_in_bytes", std::to_string(512 * kMiB));
  write("/sys/fs/cgroup/memory/app/memory.usage_in_bytes", std::to_string(512 * kMiB));
  write("/sys/fs/cgroup/memory/app/memory.stat", "total_inactive_file " + std::to_string(12 * kMiB) + "\n");
  EXPECT_EQ(available(), 12 * kMiB);
}

TEST_F(Memory, ThisProcessOccupiesSome) {
  EXPECT_GT(resident_memory(), kMiB);
}

}  // namespace
}  // namespace inferno
