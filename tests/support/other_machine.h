// A folder that looks like the root of another machine, for code that reads /proc and /sys.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace inferno::testing {

class OtherMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("inferno-machine-" + std::to_string(::getpid()) + "-" + test->test_suite_name() + "-" + test->name());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ / path.substr(1);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  // Control groups of version 2, of which the mount shows the part below `hierarchy_root`.
  void mount_v2(const std::string& hierarchy_root = "/") const {
    write("/proc/self/mountinfo",
          "22 1 0:20 / / rw - ext4 /dev/sda rw\n"
          "30 22 0:26 " +
              hierarchy_root + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace inferno::testing
