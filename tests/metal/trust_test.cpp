// A GPU is tried before a model runs on it: what is found, and what is remembered.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "backend/factory.h"
#include "backend/metal/metal_backend.h"
#include "base/error.h"
#include "emulated_device.h"
#include "engine/device_trust.h"
#include "verify/self_check.h"

namespace inferno {
namespace {

constexpr OpId kTried[] = {OpId::rms_norm, OpId::embed};

// Forgets to run one kind of kernel.
class LazyDevice final : public test::EmulatedDevice {
 public:
  explicit LazyDevice(metal::Kernel left_out) : left_out_(left_out) {}
  void dispatch(const metal::Dispatch& what) override {
    if (what.kernel.kernel != left_out_) EmulatedDevice::dispatch(what);
  }

 private:
  metal::Kernel left_out_;
};

// Has kernels that do not compile.
class EmptyDevice final : public test::EmulatedDevice {
 public:
  void prepare(const metal::KernelId& kernel) override { fail("no kernel \"{}\" here", kernel.name()); }
};

DeviceTrial trial_of(std::string kernels, std::string memory) {
  return {.make = [] { return std::make_unique<metal::MetalBackend>(std::make_unique<test::EmulatedDevice>()); },
          .kernels = std::move(kernels),
          .memory = std::move(memory),
          .ops = kTried};
}

template <typename Device, typename... Args>
DeviceTrial trial_with(const std::string& memory, Args... args) {
  return {.make = [args...] { return std::make_unique<metal::MetalBackend>(std::make_unique<Device>(args...)); },
          .kernels = "some",
          .memory = memory,
          .ops = kTried};
}

std::string memory_file(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "inferno_trust";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / name);
  return (folder / name).string();
}

TEST(MetalTrust, ARightDeviceIsTrustedAndRemembered) {
  const std::string memory = memory_file("right");
  EXPECT_EQ(distrust(trial_of("some", memory)), "");
  EXPECT_TRUE(std::filesystem::exists(memory));
  // What would be found wrong is not looked for: it was right.
  EXPECT_EQ(distrust(trial_with<LazyDevice>(memory, metal::Kernel::rms_norm)), "");
}

TEST(MetalTrust, OtherKernelsAreTriedAgain) {
  const std::string memory = memory_file("other");
  EXPECT_EQ(distrust(trial_of("others", memory)), "");
  EXPECT_NE(distrust(trial_with<LazyDevice>(memory, metal::Kernel::rms_norm)), "");
}

TEST(MetalTrust, AWrongKernelIsNamedAndNotRemembered) {
  const std::string memory = memory_file("wrong");
  const std::string why = distrust(trial_with<LazyDevice>(memory, metal::Kernel::embed));
  EXPECT_NE(why.find("embed"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_FALSE(std::filesystem::exists(memory));
}

TEST(MetalTrust, KernelsThatDoNotCompileAreAReasonAndNoError) {
  const std::string why = distrust(trial_with<EmptyDevice>(""));
  EXPECT_NE(why.find("no kernel"), std::string::npos) << why;
}

TEST(MetalTrust, AFileThatIsDamagedIsNotBelieved) {
  const std::string memory = memory_file("damaged");
  EXPECT_EQ(distrust(trial_of("some", memory)), "");
  std::filesystem::resize_file(memory, 7);
  EXPECT_NE(distrust(trial_with<LazyDevice>(memory, metal::Kernel::rms_norm)), "");
}

}  // namespace
}  // namespace inferno
